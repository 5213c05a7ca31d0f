"""The fit of the cost model writes nothing for constants at a bound, or another GPU's recordings.

usage: fit_tuning_test.py FLASHCORE_FIT_TUNING
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
GPU = {"name": "NVIDIA X1", "compute_capability": 90, "multiprocessors": 132, "sm_clock_mhz": 1500,
       "memory_gb_s": 1000}
KERNELS = ("forward_sm90_latency", "forward_sm90_throughput", "forward_sm80_latency", "forward_sm80_throughput")


class FitTuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def fit(self, us: float, kind: str, **gpu) -> tuple[subprocess.CompletedProcess, bool]:
        """Fits a grid in which everything takes this long; returns whether the file is unchanged."""
        device = {key: value for key, value in GPU.items() if key != "sm_clock_mhz"}
        device |= {"sm_clock_max_mhz": 1500, "shared_memory_per_block": 232448} | gpu
        shapes = [(heads, seqlen, causal) for heads in (1, 8) for seqlen in (128, 512) for causal in (False, True)]
        rows = [{"dtype": "f16", "heads": heads, "seqlen": seqlen, "head_dim": 64, "causal": causal,
                 "kernels": [{"kernel": kernel, "us": us} for kernel in KERNELS]} for heads, seqlen, causal in shapes]
        cases = [{"suite": "small_grid", "dtype": "f16", "batch": 1, "heads_q": heads, "heads_kv": heads,
                  "seqlen_q": seqlen, "seqlen_kv": seqlen, "head_dim": 64, "causal": causal,
                  "rows": [{"source": "flashcore", "implementation": kernel, "times": {"sustained": {"p50_us": us}}}
                           for kernel in KERNELS]} for heads, seqlen, causal in shapes]
        grid = {"kind": kind, "library": {"commit": "abc"}, "device": device,
                **({"cases": cases} if kind == "bench" else {"rows": rows})}
        (self.root / "grid.json").write_text(json.dumps(grid), encoding="utf-8")
        document = {"gpu": GPU, "measurements": [{"file": "grid.json", "commit": ""}],
                    "measured": {"most_waves": 8, "most_steps": 8}, "fit": {"seed": 1, "folds": 2}}
        file = self.root / "constants.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        before = file.read_text(encoding="utf-8")
        done = subprocess.run([PROGRAM, "constants.json"], cwd=self.root, capture_output=True, text=True,
                              timeout=300, check=False)
        return done, file.read_text(encoding="utf-8") == before

    def test_a_constant_at_a_bound_is_an_error(self):
        said = set()
        for kind in ("small_grid", "bench"):
            done, unchanged = self.fit(1e-3, kind)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("at a bound of the search", done.stderr)
            self.assertTrue(unchanged)
            said.add(done.stderr)
        self.assertEqual(len(said), 1, said)  # the rows are the same

    def test_recordings_of_another_gpu_are_an_error(self):
        done, unchanged = self.fit(5, "bench", name="NVIDIA X2")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("gpu: is not what the recordings were made on, NVIDIA X2", done.stderr)
        self.assertTrue(unchanged)

    def test_a_file_that_is_not_there_is_an_error(self):
        done = subprocess.run([PROGRAM, "none.json"], cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("none.json: cannot be opened", done.stderr)


if __name__ == "__main__":
    unittest.main()
