"""tools/mutants.py without compiling: its handling of changes, and the page's statements."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import mutants  # noqa: E402
from reporting import verify  # noqa: E402
from reporting.evidence import check_evidence  # noqa: E402


class FakeBuild:
    """Compiles unless a line has no semicolon; its only test detects a wrong sum."""

    def link(self, _program, file, folder):
        self.text = (folder / file).read_text()
        return "" if ";" in self.text else "a.cpp:1: error: wanted ';'"

    def notices(self, program, _which):
        return f"{program.name}: Sum.IsRight" if "a - b" in self.text else ""


class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "a.cpp").write_text("return a + b; // a + 0\n")
        for name, value in (("ROOT", self.root), ("FOLDER", self.root / "build-mutants"),
                            ("RESULTS", self.root / "build-mutants/results.json"),
                            ("LIST", self.root / "list.json")):
            patch = mock.patch.object(mutants, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def judge(self, find, replace):
        mutant = {"name": "one", "file": "a.cpp", "find": find, "replace": replace,
                  "tests": {"sum_test": "*"}}
        before = (self.root / "a.cpp").read_text()
        result = mutants.judge(FakeBuild(), mutant)
        self.assertEqual((self.root / "a.cpp").read_text(), before)
        self.assertFalse(list((self.root / "build-mutants").glob("mutants/*")))
        return result["outcome"], result["by"]

    def test_outcomes(self):
        self.assertEqual(self.judge("a + b", "a - b"), ("noticed", "sum_test: Sum.IsRight"))
        self.assertEqual(self.judge("a + b", "b + a"), ("survived", ""))
        self.assertEqual(self.judge("a + b;", "a + b")[0], "not compiled")
        self.assertEqual(self.judge("a + c", "a"),
                         ("not applied", "its text occurs 0 times, wanted once"))
        self.assertEqual(self.judge("a + ", "a - ")[0], "not applied")

    def test_the_list_is_of_now(self):
        """Each text occurs once in its file, and its tests are named."""
        root = pathlib.Path(__file__).resolve().parents[2]
        listed = json.loads((root / "tools/mutants.json").read_text())
        self.assertGreaterEqual(len(listed), 60)
        for one in listed:
            count = (root / one["file"]).read_text().count(one["find"])
            self.assertEqual(count, 1, f"{one['name']}: '{one['find']}' in {one['file']}")
            self.assertTrue(one["tests"], one["name"])

    def test_a_result_is_kept_until_the_mutant_or_its_file_changes(self):
        mutant = {"name": "one", "file": "a.cpp", "find": "a + b", "replace": "", "tests": {}}
        key = mutants.key_of(mutant)
        self.assertEqual(mutants.key_of(dict(mutant)), key)
        self.assertNotEqual(mutants.key_of(mutant | {"replace": "a"}), key)
        (self.root / "a.cpp").write_text("return a + b;\n")
        self.assertNotEqual(mutants.key_of(mutant), key)

    def test_evidence_and_page(self):
        listed = [{"name": name, "file": "a.cpp", "find": name, "replace": "", "tests": {}}
                  for name in ("first", "second", "third")]
        listed[1]["why"] = "Nothing depends on it."
        mutants.LIST.write_text(json.dumps(listed))
        self.assertEqual(verify.mutants({"mutants": mutants.evidence()}), "Not run yet.")
        mutants.FOLDER.mkdir()
        mutants.RESULTS.write_text(json.dumps({
            one["name"]: {"key": mutants.key_of(one), "outcome": outcome, "by": ""}
            for one, outcome in zip(listed, ("noticed", "survived"))}))
        (self.root / "CMakeLists.txt").write_text("project(a VERSION 1.2.3)\n")
        evidence = mutants.evidence()
        check_evidence(evidence)
        self.assertFalse(evidence["complete"])
        self.assertEqual(evidence["library"]["version"], "1.2.3")
        page = verify.mutants({"mutants": evidence})
        self.assertIn("| all | 2 | 1 | 50% |", page)
        self.assertIn("- survived: second. Nothing depends on it.", page)
        self.assertIn("- not run: third.", page)

    def test_evidence_without_git_has_no_commit(self):
        mutants.LIST.write_text("[]")
        with mock.patch.dict(os.environ, {"PATH": str(self.root)}):
            evidence = mutants.evidence()
        check_evidence(evidence)
        self.assertEqual((evidence["library"]["commit"], evidence["library"]["modified"]), ("", False))

    def test_names_are_their_own(self):
        mutants.LIST.write_text(json.dumps([{"name": "one"}, {"name": "one"}]))
        with self.assertRaisesRegex(mutants.Failure, "'one' is there twice"):
            mutants.mutants()

    def test_a_key_that_is_not_known_is_refused(self):
        mutants.LIST.write_text(json.dumps([{"name": "one", "test": {}}]))
        with self.assertRaisesRegex(mutants.Failure,
                                    r"^list.json\[0\]: .*'test' was unexpected"):
            mutants.mutants()


if __name__ == "__main__":
    unittest.main()
