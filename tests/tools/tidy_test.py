"""scripts/tidy.py: which files are checked together, and which file a finding belongs to."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import tidy  # noqa: E402

GOOD = "namespace flashcore {{\nint good_{0}() {{ return {0}; }}\n}}  // namespace flashcore\n"
OWN = ("namespace flashcore {{\nnamespace {{\n{0}\n}}  // namespace\n"
       "int uses_{1}() {{ return sizeof(Options); }}\n}}  // namespace flashcore\n")


class Tree(unittest.TestCase):
    """A project of a few files, with a compilation database."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name).resolve()
        (self.root / "build").mkdir()
        shutil.copy(ROOT / ".clang-tidy", self.root / ".clang-tidy")
        for name, value in (("ROOT", self.root), ("PASSED", self.root / ".cache/tidy")):
            patch = mock.patch.object(tidy, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(self.folder.cleanup)
        self.entries = []

    def add(self, name, text, flags=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.entries = [entry for entry in self.entries if entry["file"] != str(path)]
        self.entries.append({"directory": str(self.root / "build"), "file": str(path),
                             "command": f"/usr/bin/c++ -std=c++20 {flags} -o {path.stem}.o -c {path}"})
        (self.root / "build/compile_commands.json").write_text(json.dumps(self.entries))

    def groups(self):
        return [[pathlib.Path(entry["file"]).name for entry in group.entries]
                for group in tidy.groups_of(tidy.wanted_entries(self.root / "build"))]

    def run_tool(self):
        said = io.StringIO()
        tidy.digest_of.cache_clear()
        tidy.includes_of.cache_clear()
        with mock.patch.object(sys, "argv", ["tidy.py", str(self.root / "build"), "clang-tidy-14"]), \
                contextlib.redirect_stdout(said):
            code = tidy.main()
        return code, said.getvalue()


class Groups(Tree):
    def test_files_with_the_same_flags_go_together(self):
        for n in range(tidy.LARGEST_GROUP + 1):
            self.add(f"src/file_{n}.cpp", GOOD.format(n))
        self.add("cli/other.cpp", GOOD.format(98), "-DOTHER")
        self.add("tests/no.cpp", GOOD.format(99))
        groups = self.groups()
        self.assertEqual(sorted(len(group) for group in groups), [1, 1, tidy.LARGEST_GROUP])
        self.assertIn(["other.cpp"], groups)
        self.assertNotIn("no.cpp", sum(groups, []))

    def test_what_would_collide_is_kept_apart(self):
        self.add("src/a.cpp", OWN.format("struct Options {\n  int a;\n};", 1))
        self.add("src/b.cpp", OWN.format("struct Options {\n  int b;\n};", 2))
        self.add("src/c.cpp", "namespace flashcore {\nint Options(int x) { return x; }\n}\n")
        self.add("src/d.cpp", "#define MACRO 1\n" + GOOD.format(4))
        self.add("src/e.cpp", '#include "e_local.hpp"\n' + GOOD.format(5))
        (self.root / "src/e_local.hpp").write_text("#pragma once\n")
        self.add("src/f.cpp", GOOD.format(6))
        self.add("src/g.c", "int g(void) { return 7; }\n")
        groups = self.groups()
        self.assertEqual(sorted(map(sorted, groups)),
                         [["a.cpp", "f.cpp"], ["b.cpp"], ["c.cpp"], ["d.cpp"], ["e.cpp"], ["g.c"]])


class Changes(Tree):
    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True,
                       capture_output=True)

    @unittest.skipUnless(shutil.which("git"), "git is not here")
    def test_a_file_is_reached_by_a_change_of_what_it_includes(self):
        (self.root / "src").mkdir()
        (self.root / "src/deep.hpp").write_text("#pragma once\n")
        (self.root / "src/shared.hpp").write_text('#include "src/deep.hpp"\n')
        self.add("src/a.cpp", '#include "src/shared.hpp"\n' + GOOD.format(1), f"-I{self.root}")
        self.add("src/b.cpp", GOOD.format(2))
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        (self.root / "src/deep.hpp").write_text("#pragma once\nint changed();\n")
        with mock.patch.dict(os.environ, {"FLASHCORE_TIDY_BASE": "HEAD"}):
            changed = tidy.changed_files()
        reached = [pathlib.Path(entry["file"]).name for entry in self.entries if tidy.made_of(entry) & changed]
        self.assertEqual(reached, ["a.cpp"])


@unittest.skipUnless(shutil.which("clang-tidy-14"), "clang-tidy 14 is not here")
class Findings(Tree):
    BAD = "namespace flashcore {\n\nint* bad() { return 0; }\n}  // namespace flashcore\n"
    WANTED = "src/b.cpp:3:21: error: use nullptr"

    def test_a_finding_names_its_file_and_line_and_what_passed_is_not_checked_again(self):
        self.add("src/a.cpp", "#include <string>\n" + GOOD.format(1))
        self.add("src/b.cpp", self.BAD)
        self.add("src/c.cpp", "#include <string>\n" + GOOD.format(3))
        self.assertEqual(len(self.groups()), 1)
        code, said = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn(self.WANTED, said)
        self.assertNotIn("build/tidy", said)
        self.add("src/b.cpp", GOOD.format(2))
        code, said = self.run_tool()
        self.assertEqual(code, 0, said)
        self.assertIn("3 files, of which 3 are new, in 1 groups; 0 not passed", said)
        self.add("src/b.cpp", self.BAD)
        code, said = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("3 files, of which 1 are new, in 1 groups; 1 not passed", said)

    def test_what_passed_in_one_checkout_is_not_checked_in_another(self):
        self.add("src/a.cpp", GOOD.format(1))
        self.assertIn("1 files, of which 1 are new", self.run_tool()[1])
        other = self.root / "other"
        shutil.copytree(self.root / "build", other / "build")
        shutil.copy(self.root / ".clang-tidy", other / ".clang-tidy")
        with mock.patch.object(tidy, "ROOT", other), mock.patch.object(self, "root", other):
            self.entries = []
            self.add("src/a.cpp", GOOD.format(1))
            self.assertIn("1 files, of which 0 are new", self.run_tool()[1])
            self.add("src/a.cpp", self.BAD)
            self.assertIn("1 files, of which 1 are new", self.run_tool()[1])

    def test_each_file_of_a_group_is_held_to_what_a_main_file_is(self):
        """clang-tidy does not report these for headers, so a group may not consist of includes."""
        self.add("src/a.cpp", GOOD.format(1))
        self.add("src/b.cpp", "namespace flashcore {}\nnamespace unused = flashcore;\n")
        self.add("src/c.cpp", "#include <vector>\n#include <vector>\nusing std::vector;\n")
        self.add("src/d.cpp", "namespace std {}\nnamespace flashcore {\n"
                              "int divide(int x) {\n  int zero = 0;\n  return x / zero;\n}\n}\n")
        (self.root / "src/b.cpp").write_text("namespace flashcore {}\nnamespace unused = flashcore;\n")
        self.assertEqual(len(self.groups()), 1)
        _, said = self.run_tool()
        for part in ("src/b.cpp:2:11: error: namespace alias decl 'unused' is unused",
                     "src/c.cpp:2:1: error: duplicate include",
                     "src/c.cpp:3:12: error: using decl 'vector' is unused",
                     "src/d.cpp:5:12: error: Division by zero"):
            self.assertIn(part, said)

    def test_what_does_not_compile_together_is_checked_file_by_file(self):
        for name in "ab":  # names that are not at the left margin
            self.add(f"src/{name}.cpp", "namespace flashcore {\nnamespace {\n  struct Own {};\n"
                     f"}}  // namespace\nint {name}(Own) {{ return 1; }}\n}}  // namespace flashcore\n")
        self.assertEqual(len(self.groups()), 1)
        code, said = self.run_tool()
        self.assertEqual(code, 0, said)
        self.add("src/c.cpp", "int c() { return nothing; }\n")
        code, said = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("src/c.cpp:1:18: error: use of undeclared identifier 'nothing'", said)

    def test_what_is_not_begun_in_time_is_counted(self):
        self.add("src/a.cpp", GOOD.format(1))
        with mock.patch.dict("os.environ", {"FLASHCORE_TIDY_SECONDS": "-1"}):
            code, said = self.run_tool()
        self.assertEqual(code, 0)
        self.assertIn("0 not passed, 1 left out for lack of time", said)


if __name__ == "__main__":
    unittest.main()
