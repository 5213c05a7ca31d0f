#!/usr/bin/env python3
"""The constants for few queries are those that their recordings give (tools/tuning/fit_decode.py)."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/tuning"))
import fit_decode as tool  # noqa: E402


class FitDecode(unittest.TestCase):
    def test_constants_in_use_are_as_good_as_fitted_ones(self):
        folder = ROOT / "src/tuning/gpus/h200"
        constants = json.loads((folder / "constants.json").read_text())
        gpu, in_use = constants["gpu"], [float(constants["rules"][name]) for name in tool.FITTED]
        rows = [row for row in json.loads((folder / "few_queries.json").read_text())["rows"]
                if "decode_sm90" in row["us"]]
        self.assertGreater(len(rows), 90)
        fitted = tool.fit(in_use, rows, gpu)
        self.assertLess(tool.error(in_use, rows, gpu), 1.02 * tool.error(fitted, rows, gpu))
        worse = [1.3 * x for x in in_use]
        self.assertGreater(tool.error(worse, rows, gpu), 1.1 * tool.error(fitted, rows, gpu))


if __name__ == "__main__":
    unittest.main()
