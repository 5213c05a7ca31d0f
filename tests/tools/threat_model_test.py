"""docs/threat-model.md names tests that exist, and its picture has the rows of its table."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from reporting import trust  # noqa: E402

PAGE = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
FILE = re.compile(r"`([\w-]+\.(?:py|sh|cpp))`")


def tests() -> set[str]:
    found = set()
    for path in (ROOT / "tests").rglob("*.cpp"):
        text = path.read_text(encoding="utf-8")
        found |= {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)", text, re.MULTILINE)}
    return found


def table() -> list[list[str]]:
    rows = PAGE.partition("| from | what |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


class ThreatModel(unittest.TestCase):
    def test_every_row_names_a_test_that_exists(self):
        known = tests()
        files = {path.name for folder in ("tests", "scripts") for path in (ROOT / folder).rglob("*") if path.is_file()}
        self.assertGreater(len(table()), 12)
        for *_, shown in table():
            self.assertTrue(TEST.search(shown) or FILE.search(shown), shown)
        self.assertEqual([name for name in TEST.findall(PAGE) if name not in known], [])
        self.assertEqual([name for name in FILE.findall(PAGE) if name not in files], [])
        self.assertNotIn("Cheats.NoSuchTest", known)

    def test_the_picture_has_who_gives_on_the_page(self):
        on_page = {giver for giver, *_ in table()}
        drawn = {giver for _, entries in trust.PROCESSES for giver, *_ in entries}
        self.assertEqual(drawn - on_page, set())
        self.assertEqual(on_page - drawn, {"the caller's callbacks", "whoever packs"})  # inside, and before

    def test_texts_of_the_picture_fit(self):
        for process, entries in trust.PROCESSES:
            for words, (left, right) in [*((line, trust.INSIDE) for line in process.split("\n")),
                                         *((gives, trust.GIVER) for _, gives, _ in entries),
                                         *((check, trust.CHECK) for *_, check in entries)]:
                self.assertLess(len(words) * 6.6 + 20, right - left, words)


if __name__ == "__main__":
    unittest.main()
