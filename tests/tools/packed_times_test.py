"""tools/packed_times.py without a GPU: what it times, and the evidence that it writes of it."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fixtures  # noqa: E402
import packed_times  # noqa: E402
from reporting import evidence, packed  # noqa: E402

KERNEL = "forward_sm90_throughput"
CODE = {"nvcc": "13.0.88",
        "kernels": {KERNEL: {"sm_80": "0" * 16, "sm_90": "9" * 16}, "other": {"sm_80": "8" * 16}}}


class Setting:
    """Each call is what it was made of."""

    def packed(self, lengths, head_dim, causal, longest):
        return ("packed", tuple(lengths), head_dim, causal, longest), KERNEL

    def dense(self, lengths, head_dim, causal):
        return ("dense", tuple(lengths), head_dim, causal), KERNEL


class Timer:
    """Seconds by the call: a packed batch without a maximum takes twice the dense one's."""

    def __init__(self):
        self.calls = []

    def samples(self, call, _):
        self.calls.append(call)
        seconds = 2e-3 if call[0] == "packed" and call[4] == 0 else 1e-3
        return [seconds] * 9, 5


def rows_of(timer, rounds=2):
    def fingerprint(kernel):
        return packed_times.fingerprint_of(CODE, kernel, 90)

    return list(packed_times.measure(Setting(), timer, fingerprint, [64, 128], rounds))


class PackedTimes(unittest.TestCase):
    def test_every_batch_runs_full_and_causal_with_and_without_the_maximum(self):
        timer = Timer()
        rows = rows_of(timer)
        self.assertEqual(len(rows), 16)
        self.assertEqual({(row["batch"], row["head_dim"], row["causal"]) for row in rows},
                         {(name, head_dim, causal) for name, *_ in packed_times.batches()
                          for head_dim in (64, 128) for causal in (False, True)})
        packed_calls = [call for call in timer.calls if call[0] == "packed"]
        self.assertEqual({(len(call[1]), sum(call[1])) for call in packed_calls},
                         {(256, 256 * 128), (256, 16384 + 255 * 64)})
        self.assertEqual({call[4] for call in packed_calls}, {0, 128, 16384})
        places = {call[1].index(16384) for call in packed_calls if 16384 in call[1]}
        self.assertEqual(places, {0, 128, 255})
        # In turns: a round of all forms, then the next.
        self.assertEqual(timer.calls[:3], timer.calls[3:6])
        self.assertEqual(len(set(timer.calls[:3])), 3)

    def test_what_it_writes_is_evidence(self):
        rows = rows_of(Timer())
        written = packed_times.document(fixtures.common("packed"), 32, "bf16", 2, rows)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "packed.json"
            evidence.write(path, written)
            self.assertEqual(evidence.read(path)["rows"][0]["points"][0],
                             {"form": "dense", "kernel": KERNEL, "samples": 18, "p50_us": 1000.0,
                              "p90_us": 1000.0, "fingerprint": f"nvcc 13.0.88 sm_90 {'9' * 16}"})
        shares = packed.shares(rows[0])
        self.assertAlmostEqual(shares["max_seqlen"], 1)
        self.assertAlmostEqual(shares["no max_seqlen"], 0.5)
        # 16384 rows and 255 of 64 beside 16384: 0.4% more pairs.
        self.assertAlmostEqual(packed.shares(rows[2])["max_seqlen"], 1 + 255 / 256**2)
        self.assertIn("50.0% of the dense rate, goal 97%, not met", packed.line(rows[0]))
        with self.assertRaisesRegex(evidence.Failure, r"rows\[0\].points\[0\].p50_us: is 0.0, wanted"):
            rows[0]["points"][0]["p50_us"] = 0.0
            packed_times.document(fixtures.common("packed"), 32, "bf16", 2, rows)

    def test_a_time_is_tied_to_the_machine_code_that_ran(self):
        self.assertEqual(packed_times.fingerprint_of(CODE, KERNEL, 86), f"nvcc 13.0.88 sm_80 {'0' * 16}")
        self.assertEqual(packed_times.fingerprint_of(CODE, "other", 89), f"nvcc 13.0.88 sm_80 {'8' * 16}")
        for kernel, capability in (("other", 90), (KERNEL, 120), ("none", 90)):
            with self.assertRaisesRegex(evidence.Failure, f"no machine code of {kernel}"):
                packed_times.fingerprint_of(CODE, kernel, capability)

    def test_a_folder_that_is_no_build_with_cuda_is_refused(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), \
                mock.patch.object(sys, "argv", ["packed_times.py", "--build", folder]):
            self.assertEqual(packed_times.main(), 1)
        self.assertIn("is no build with CUDA kernels", said.getvalue())


if __name__ == "__main__":
    unittest.main()
