"""docs/dependencies.md has each dependency that a list installs, with the version of Debian 12, and no other."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from reporting import dependencies  # noqa: E402
from reporting.evidence import Failure  # noqa: E402


def debian_version(package: str) -> str:
    """Upstream's part of what is installed here; nothing if that is not Debian 12 or the package is missing."""
    release = pathlib.Path("/etc/os-release")
    if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text(encoding="utf-8"):
        return ""
    query = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Abbrev}${source:Upstream-Version}", package],
                           capture_output=True, text=True, check=False)
    return query.stdout[3:] if query.stdout.startswith("ii ") else ""


class Dependencies(unittest.TestCase):
    def copy(self, path: str, before: str, after: str) -> pathlib.Path:
        """A tree with the lists, and a change in one of them."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name in ("scripts/common.sh", *dependencies.FILES):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        shutil.copytree(ROOT / "cmake", root / "cmake")
        text = (root / path).read_text(encoding="utf-8")
        self.assertIn(before, text)
        (root / path).write_text(text.replace(before, after), encoding="utf-8")
        return root

    def test_a_name_without_a_reason_is_found(self):
        for path, before, after in (("scripts/common.sh", "ninja-build", "ninja-build make"),
                                    ("scripts/common.sh", "ninja-build", ""),
                                    ("scripts/common.sh", "lint_packages=(", "more_packages=(make)\nlint_packages=("),
                                    ("python/requirements-test.txt", "ruff==", "black==1.0\nruff=="),
                                    ("cmake/dependencies.cmake", "find_package(fmt", "find_package(Boost)\nfind_package(fmt")):
            with self.assertRaises(Failure, msg=after):
                dependencies.table(self.copy(path, before, after))

    def test_every_row_is_whole(self):
        rows = [line.strip("|").split("|") for line in dependencies.table().splitlines()[2:]]
        self.assertGreater(len(rows), 40)
        for row in rows:
            self.assertEqual([cell for cell in row if not cell.strip()], [], row)

    def test_versions_are_those_of_debian(self):
        for package, (version, *_) in dependencies.ABOUT.items():
            if version and package != "g++" and (here := debian_version(package)):  # g++ only leads to g++-12
                numbers = re.search(r"\d[\d.]*", here.removeprefix("1:"))[0]
                self.assertTrue(f"{numbers}.".startswith(f"{version}."), f"{package}: {version}, installed {here}")


if __name__ == "__main__":
    unittest.main()
