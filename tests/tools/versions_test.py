"""One version everywhere: usage: versions_test.py COMMAND LIBRARY (a build's)."""
import ctypes
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND, LIBRARY = sys.argv[1:3]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


VERSION = re.search(r"^project\(flashcore VERSION ([\d.]+)", read("CMakeLists.txt"), re.MULTILINE)[1]
MAJOR, MINOR, _ = VERSION.split(".")
SOVERSION = f"0.{MINOR}" if MAJOR == "0" else MAJOR


class Versions(unittest.TestCase):
    def test_the_command_and_the_library_have_it(self):
        self.assertEqual(subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout,
                         f"flashcore {VERSION}\n")
        library = ctypes.CDLL(LIBRARY)
        library.flashcore_version.restype = ctypes.c_char_p
        self.assertEqual(library.flashcore_version().decode(), VERSION)

    def test_crates_have_it_and_ask_for_it(self):
        for crate in ("flashcore", "flashcore-sys"):
            self.assertEqual(re.findall(r'^version = "(.+)"$', read(f"rust/{crate}/Cargo.toml"), re.MULTILINE), [VERSION])
        self.assertIn(f'version = "={VERSION}"', read("rust/flashcore/Cargo.toml"))

    def test_python_takes_its_version_from_the_same_line(self):
        self.assertIn("input = \"CMakeLists.txt\"", read("pyproject.toml"))
        self.assertIn("__version__ = version()", read("python/flashcore/__init__.py"))

    def test_names_of_the_abi_follow_it(self):
        self.assertIn(f"soname='libflashcore.so.{SOVERSION}'", read("abi/flashcore.abi"))
        self.assertIn(f"\nFLASHCORE_{SOVERSION} {{", read("src/api/exports.map"))

    def test_the_newest_change_is_of_it(self):
        self.assertEqual(re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.MULTILINE)[1], VERSION)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
