"""Each check of scripts/check_hardening.py can fail: a library compiled without one flag has that finding alone."""
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_hardening  # noqa: E402

SOURCE = """
#include <stdio.h>
#include <string.h>
int flashcore_length(const char* text) { char copy[16]; strcpy(copy, text); return printf("%s", copy); }
int main(int count, char** words) { return flashcore_length(words[count - 1]); }
"""
FLAGS = ["-O2", "-fPIC", "-fstack-protector-strong", "-fcf-protection", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2",
         "-Wl,-z,relro,-z,now,-z,noexecstack"]
# The flag that is replaced, by what, and the finding.
WITHOUT = [
    ("-fstack-protector-strong", "-fno-stack-protector", "has no stack protector"),
    ("-D_FORTIFY_SOURCE=2", "-DNONE", "has a call that is not fortified"),
    ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,norelro,-z,now,-z,noexecstack", "has no read-only relocations"),
    ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,relro,-z,lazy,-z,noexecstack", "is bound lazily"),
    ("-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,-z,relro,-z,now,-z,execstack", "has an executable stack"),
    ("-O2", "-O2 -Wl,-rpath,/nowhere", "has a path for libraries"),
]


class Hardening(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "a.c").write_text(SOURCE, encoding="utf-8")

    def found(self, *flags: str, kind: str = "-shared") -> list[str]:
        subprocess.run(["gcc", *" ".join(flags).split(), kind, "a.c", "-o", "made"], cwd=self.folder, check=True)
        return check_hardening.findings(self.folder / "made")

    def test_a_hardened_one_has_no_finding(self):
        self.assertEqual(self.found(*FLAGS), [])
        self.assertEqual(self.found(*FLAGS, kind="-pie"), [])

    def test_each_flag_that_is_left_out_is_found(self):
        for flag, instead, finding in WITHOUT:
            flags = [instead if one == flag else one for one in FLAGS]
            self.assertEqual(self.found(*flags), [finding], instead)
        self.assertEqual(self.found(*FLAGS, kind="-no-pie"), ["is not position-independent"])

    @unittest.skipUnless(platform.machine() == "x86_64", "only x86-64 has endbr64")
    def test_a_function_without_a_landing_place_is_found(self):
        flags = [flag.replace("-fcf-protection", "-fcf-protection=none") for flag in FLAGS]
        self.assertEqual(self.found(*flags), ["flashcore_length does not begin with endbr64"])

    def test_a_file_that_everybody_may_write_is_found(self):
        self.found(*FLAGS)
        command = [sys.executable, ROOT / "scripts/check_hardening.py", self.folder]
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 0)
        (self.folder / "a.c").chmod(0o666)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout.count("a.c: may be written by everybody")), (1, 1))

    def test_nothing_to_read_is_no_success(self):
        (self.folder / "made").unlink(missing_ok=True)
        self.assertEqual(subprocess.run([sys.executable, ROOT / "scripts/check_hardening.py", self.folder],
                                        capture_output=True, check=False).returncode, 1)


if __name__ == "__main__":
    unittest.main()
