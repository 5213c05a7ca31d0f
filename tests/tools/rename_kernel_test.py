#!/usr/bin/env python3
"""rename_kernel.py on small evidence."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fixtures  # noqa: E402
import rename_kernel as tool  # noqa: E402
from reporting.evidence import Failure, read, rounded, text_of  # noqa: E402


class Renaming(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.evidence = {
            "bench": fixtures.standard("a"), "grid": fixtures.small_grid("forward_sm80_throughput", "b"),
            "verify-forward_sm80_throughput": fixtures.verify("forward_sm80_throughput", "c"),
            "verify-forward_sm80_throughput-long": fixtures.verify("forward_sm80_split_kv", "d"),
            "ladder": fixtures.ladder([fixtures.rung("00_unfused", 1.0, "e")])}
        self.evidence["bench"]["notes"] = ["forward_sm80_throughput"]
        for name, evidence in self.evidence.items():
            (self.folder / f"{name}.json").write_text(json.dumps(evidence))

    def tearDown(self):
        self.temporary.cleanup()

    def files(self):
        return {path.stem: read(path) for path in self.folder.glob("*.json")}

    def test_every_row_has_the_new_name_and_nothing_else_changes(self):
        untouched = (self.folder / "ladder.json").read_text()
        tool.rename(self.folder, "forward_sm80_throughput", "ampere")
        found = self.files()
        self.assertEqual(set(found), {"bench", "grid", "verify-ampere", "verify-ampere-long", "ladder"})
        self.assertEqual((self.folder / "ladder.json").read_text(), untouched)
        self.assertEqual(found["bench"]["notes"], ["forward_sm80_throughput"])
        self.assertEqual(found["verify-ampere-long"]["fingerprints"], {"forward_sm80_split_kv": "d"})
        text = json.dumps([found["grid"], found["verify-ampere"], found["bench"]["cases"]])
        self.assertNotIn("forward_sm80_throughput", text)
        self.assertIn('"ampere early"', text)
        tool.rename(self.folder, "ampere", "forward_sm80_throughput")
        self.assertEqual(rounded(self.files()), rounded(self.evidence))

    def test_names_that_cannot_be_are_refused_and_nothing_is_written(self):
        before = {path: path.read_text() for path in self.folder.glob("*.json")}
        for old, new, sentence in (("forward_sm70", "volta", "OLD: is 'forward_sm70', wanted"),
                                   ("forward_sm80_throughput", "00_unfused", "NEW: is '00_unfused', which")):
            with self.assertRaisesRegex(Failure, sentence):
                tool.rename(self.folder, old, new)
            self.assertEqual(before, {path: path.read_text() for path in self.folder.glob("*.json")})


class Text(unittest.TestCase):
    def test_rows_are_lines_and_numbers_short(self):
        evidence = rounded(fixtures.standard("a") | {"seconds": 1.23456789, "bytes": 123456789.0})
        text = text_of(evidence)
        self.assertEqual(json.loads(text), evidence)
        self.assertEqual((evidence["seconds"], evidence["bytes"]), (1.23457, 123456789.0))
        rows = [line for line in text.split("\n") if line.startswith('    {"implementation":')]
        self.assertEqual(len(rows), sum(len(one["rows"]) for one in evidence["cases"]))


if __name__ == "__main__":
    unittest.main()
