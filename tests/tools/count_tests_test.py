#!/usr/bin/env python3
"""Tests of scripts/count_tests.py."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from count_tests import tests_of

PROGRAM = """<testsuites><testsuite>
<testcase classname="A" name="Passes" status="run" result="completed" time="0.5"/>
<testcase classname="A" name="Skips" status="run" result="skipped" time="0"><skipped message="no GPU"/></testcase>
<testcase classname="A" name="Disabled" status="notrun" result="suppressed" time="0"/>
%s</testsuite></testsuites>"""
FAILED_CASE = """<testcase classname="A" name="Fails" status="run" result="completed" time="0"><failure/></testcase>
"""


def entry(name: str, status: str) -> str:
    inner = {"fail": "<failure/>", "notrun": "<skipped/>"}.get(status, "")
    return f'<testcase name="{name}" status="{status}" time="1">{inner}</testcase>'


class CountTests(unittest.TestCase):
    def count(self, entries: list[str], programs: dict[str, str]) -> tuple[int, int, int]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "junit").write_text(f"<testsuite>{''.join(entries)}</testsuite>", encoding="utf-8")
            for name, text in programs.items():
                (root / f"{name}.xml").write_text(text, encoding="utf-8")
            found = [one.outcome for one in tests_of(root / "junit", root)]
        return tuple(found.count(outcome) for outcome in ("passed", "failed", "skipped"))

    def test_cases_of_programs_and_other_tests_are_counted(self):
        entries = [entry("p", "run"), entry("script", "run"), entry("gpu", "notrun"), entry("bad", "fail")]
        self.assertEqual(self.count(entries, {"p": PROGRAM % ""}), (2, 1, 3))

    def test_a_failed_case_is_one_failure(self):
        self.assertEqual(self.count([entry("p", "fail")], {"p": PROGRAM % FAILED_CASE}), (1, 1, 2))

    def test_a_program_that_fails_after_its_cases_is_a_failure(self):
        self.assertEqual(self.count([entry("p", "fail")], {"p": PROGRAM % ""}), (1, 1, 2))

    def test_a_program_that_left_no_file_or_half_of_one_is_a_failure(self):
        self.assertEqual(self.count([entry("p", "fail")], {}), (0, 1, 0))
        self.assertEqual(self.count([entry("p", "fail")], {"p": PROGRAM[:60]}), (0, 1, 0))


if __name__ == "__main__":
    unittest.main()
