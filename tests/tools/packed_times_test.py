"""tools/packed_times.py without a GPU: what it times, and its evidence; and launched.py over a
driver stub with one graph."""
import contextlib
import ctypes
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fixtures  # noqa: E402
import launched  # noqa: E402
import packed_times  # noqa: E402
from reporting import evidence, packed  # noqa: E402

KERNEL = "forward_sm90_throughput"
PRINT = f"nvcc 13.0.88 sm_90 {'9' * 16} "


class Setting:
    """Records how each call was made."""

    def packed(self, lengths, head_dim, causal, longest):
        return ("packed", tuple(lengths), head_dim, causal, longest), KERNEL

    def dense(self, lengths, head_dim, causal):
        return ("dense", tuple(lengths), head_dim, causal), KERNEL


class Timer:
    """Returns seconds by call: a packed batch without a maximum takes twice the dense one's."""

    def __init__(self):
        self.calls = []

    def samples(self, call, _):
        self.calls.append(call)
        seconds = 2e-3 if call[0] == "packed" and call[4] == 0 else 1e-3
        return [seconds] * 9, 5


def rows_of(timer, rounds=2):
    def fingerprint_of(call):
        return PRINT + ("a" if call[0] == "packed" else "d") * 16

    return list(packed_times.measure(Setting(), timer, fingerprint_of, [64, 128], rounds))


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
        # In turns: one round of all forms, then the next.
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
                              "p90_us": 1000.0, "fingerprint": PRINT + "d" * 16})
        shares = packed.shares(rows[0])
        self.assertAlmostEqual(shares["max_seqlen"], 1)
        self.assertAlmostEqual(shares["no max_seqlen"], 0.5)
        # 16384 rows and 255 of 64 compared with 16384: 0.4% more pairs.
        self.assertAlmostEqual(packed.shares(rows[2])["max_seqlen"], 1 + 255 / 256**2)
        self.assertIn("50.0% of the dense rate, goal 97%, not met", packed.line(rows[0]))
        with self.assertRaisesRegex(evidence.Failure, r"rows\[0\].points\[0\].p50_us: is 0.0, wanted"):
            rows[0]["points"][0]["p50_us"] = 0.0
            packed_times.document(fixtures.common("packed"), 32, "bf16", 2, rows)

    def test_a_time_is_tied_to_the_machine_code_that_ran(self):
        for row in rows_of(Timer()):
            self.assertEqual([point["fingerprint"][-1] for point in row["points"]], ["d", "a", "a"])

    def test_a_folder_that_is_no_build_with_cuda_is_refused(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), \
                mock.patch.object(sys, "argv", ["packed_times.py", "--build", folder]):
            self.assertEqual(packed_times.main(), 1)
        self.assertIn("is no build with CUDA kernels", said.getvalue())


GRAPH = 77
ROWS, JOIN = "_ZN9flashcore4cuda11rows_kernelEv", "_ZN9flashcore4cuda11join_kernelEv"
CODE = {"nvcc": "13.0.88", "functions": {
    "sm_80": {ROWS: "0" * 16, JOIN: "8" * 16}, "sm_90": {ROWS: "9" * 16, JOIN: "1" * 16}}}


class Driver:
    """Nodes: a copy, one of ours by function, one of ours by kernel, and another library's."""
    nodes = {11: None, 12: (("function", 5), ROWS), 13: (("kernel", 6), JOIN),
             14: (("function", 7), "_ZN2at6native4fillEv")}

    def __init__(self, broken: str = ""):
        self.broken = broken

    def cuGraphGetNodes(self, graph, nodes, count):
        if graph.value != GRAPH or self.broken == "cuGraphGetNodes":
            return 400
        if nodes is None:
            count._obj.value = len(self.nodes)
        else:
            nodes[:] = list(self.nodes)
        return 0

    def cuGraphNodeGetType(self, node, kind):
        kind._obj.value = 1 if self.nodes[node.value] is None else 0
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, params):
        (member, handle), _ = self.nodes[node.value]
        setattr(params._obj, member, handle)
        return 0

    def name(self, member, name, handle):
        name._obj.value = next(text for place, text in filter(None, self.nodes.values())
                               if place == (member, handle.value)).encode()
        return 0

    def cuFuncGetName(self, name, handle):
        return self.name("function", name, handle)

    def cuKernelGetName(self, name, handle):
        return self.name("kernel", name, handle)


class Launched(unittest.TestCase):
    def test_our_functions_of_a_graph_are_found(self):
        self.assertEqual(launched.functions_in(GRAPH, Driver()), {ROWS, JOIN})
        self.assertEqual(ctypes.sizeof(launched.NodeParams), 72)  # as in cuda.h
        with self.assertRaisesRegex(evidence.Failure, "cuGraphGetNodes: failed with error 400"):
            launched.functions_in(GRAPH, Driver("cuGraphGetNodes"))

    def test_evidence_names_the_code_that_a_gpu_runs(self):
        self.assertEqual(launched.fingerprint(CODE, {ROWS, JOIN}, 90),
                         f"nvcc 13.0.88 sm_90 {'1' * 16} {'9' * 16}")
        self.assertEqual(launched.fingerprint(CODE, {ROWS}, 86), f"nvcc 13.0.88 sm_80 {'0' * 16}")
        for names, capability, sentence in (({ROWS}, 100, f"no machine code of {ROWS} for compute capability 100"),
                                            ({"other"}, 90, "no machine code of other"),
                                            (set(), 90, "launches no function of the library")):
            with self.assertRaisesRegex(evidence.Failure, sentence):
                launched.fingerprint(CODE, names, capability)


if __name__ == "__main__":
    unittest.main()
