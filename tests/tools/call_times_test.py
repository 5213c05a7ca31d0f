"""tools/call_times.py without a GPU: its cases, evidence and table."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import call_times  # noqa: E402
import fixtures  # noqa: E402
import kernel_folders  # noqa: E402
from reporting import calls, evidence  # noqa: E402

PRINT = "nvcc 13.0.88 sm_90 0123456789abcdef"


def row(**changed) -> dict:
    return {"call": "merge", "case": "32 heads", "kernel": "merge", "fingerprint": PRINT, "bytes": 400_000_000,
            "p50_us": 100.0, "p90_us": 110.0, "samples": 27, "copy_us": 80.0} | changed


class Evidence(evidence.Evidence):
    root = None
    each = evidence.Evidence.each

    def __init__(self, rows):
        self.file = call_times.document(fixtures.common("calls"), 3, rows)

    def of_kind(self, kind):
        return {"calls": self.file} if kind == "calls" else {}

    def is_stale(self, kernel, measured):
        return measured != PRINT


class CallTimesTest(unittest.TestCase):
    def test_cases_are_of_kernels_that_there_are(self):
        known = {name for folder in kernel_folders.folders() for name in folder.kernels}
        cases = list(call_times.cases())
        self.assertEqual({"merge", "append", "quantize"}, {case[0] for case in cases})
        self.assertEqual(len(cases), len({case[:3] for case in cases}))
        for case in cases:
            self.assertIn(case[1], known)

    def test_what_it_writes_is_evidence(self):
        written = call_times.document(fixtures.common("calls"), 3, [row()])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "calls.json"
            path.write_text(json.dumps(written))
            self.assertEqual(written, evidence.read(path))
        with self.assertRaisesRegex(evidence.Failure, "p50_us"):
            call_times.document(fixtures.common("calls"), 3, [row(p50_us=0)])

    def test_table(self):
        text = calls.parts(Evidence([row(), row(fingerprint="nvcc 13.0.88 sm_90 0")]))["calls"]()
        self.assertIn("| `merge` | 32 heads | 400.0 | 100 | 80.00 | 4.00 | 1.25 |", text)
        self.assertIn("`merge` (stale)", text)


if __name__ == "__main__":
    unittest.main()
