"""The table of GPU constants: contains the files' values, and an invalid file is named."""
import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu_tables as tool  # noqa: E402

SOUND = {"gpu": {"name": "NVIDIA X1", "compute_capability": 90, "multiprocessors": 10, "sm_clock_mhz": 1500,
                 "memory_gb_s": 1000.5},
         "fit": {"error": 0.05}, "measured": {"most_waves": 8, "most_steps": 4}, "launch_us": 1.5,
         "rules": {key: number + 1 for number, key in enumerate(tool.RULES)},
         "tiles": [{"tile": "a", "head_dim": 64, "begin_and_end_us": 0.5, "step_us": 0.25, "mask_us": 0.125,
                    "alone": 1.0, "tail": 0.3}]}


class GpuTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "x1" / "constants.json"
        self.path.parent.mkdir()

    def source(self, document: dict) -> str:
        self.path.write_text(json.dumps(document), encoding="utf-8")
        return tool.source([self.path])

    def test_a_file_is_a_row(self):
        source = self.source(SOUND)
        for part in ('{"a", 64, {0.5, 0.25, 0.125, 1, 0.3}},', '.gpu = "NVIDIA X1"', ".launch = 1.5,",
                     ".multiprocessors = 10", ".memory_gb_s = 1000.5", ".error = 0.05", ".most_steps = 4",
                     ".fp8_as_bf16_above_head_dim = 1,", ".split_queries = 14}"):
            self.assertIn(part, source)

    def test_this_repository_s_files_are_sound(self):
        files = sorted((ROOT / "src/tuning/gpus").glob("*/constants.json"))
        self.assertTrue(files)
        self.assertIn("NVIDIA H200", tool.source(files))

    def test_what_makes_no_sense_is_named(self):
        for place, value, said in ((("launch_us",), 0, "launch_us is 0"),
                                   (("launch_us",), None, "launch_us is None"),
                                   (("gpu", "name"), 'a"b', "name is"),
                                   (("gpu", "multiprocessors"), -1, "multiprocessors is -1"),
                                   (("fit", "error"), "x", "error is 'x'"),
                                   (("rules", "paged_rows"), None, "paged_rows is None"),
                                   (("tiles", 0, "step_us"), -0.1, "x1/constants.json: a, 64: step_us is -0.1"),
                                   (("tiles", 0, "tail"), 1e9, "tail is"),
                                   (("tiles", 0, "mask_us"), True, "mask_us is True"),
                                   (("tiles", 0, "alone"), 1.5, "alone is 1.5"),
                                   (("tiles",), [], "has no tile"),
                                   (("tiles",), 2 * SOUND["tiles"], "is there twice")):
            with self.subTest(place=place, value=value):
                document = copy.deepcopy(SOUND)
                at = document
                for key in place[:-1]:
                    at = at[key]
                at[place[-1]] = value
                with self.assertRaises(tool.Wrong) as found:
                    self.source(document)
                self.assertIn(said, str(found.exception))

    def test_a_part_that_is_missing_is_named(self):
        for key in ("gpu", "fit", "tiles", "measured"):
            with self.assertRaises(tool.Wrong) as found:
                self.source({name: part for name, part in SOUND.items() if name != key})
            self.assertIn(key, str(found.exception))
        with self.assertRaises(tool.Wrong):
            tool.source([])


if __name__ == "__main__":
    unittest.main()
