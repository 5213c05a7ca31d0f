"""The pages: every link leads to an existing file and heading, and every path in backticks exists."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:src|tools|tests|bench|scripts|include|python|rust|docs|cmake|cli|examples)/[\w./-]+)`")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def pages() -> list[pathlib.Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]


def anchors(text: str) -> set[str]:
    """Anchors as GitHub makes them from headings."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(words.replace(" ", "-"))
    return found


# Operators around attention, which semantics.md describes.
WITHOUT_A_PAGE = {"convert"}


def page_of(family: str) -> str:
    """forward-sm90.md of forward-sm90, decode.md of decode-sm80: a page of its own, or one of several."""
    own = f"{family}.md"
    return own if (ROOT / "docs" / own).exists() else re.sub(r"-sm\d+$", "", family) + ".md"


def dead_links(page: pathlib.Path, text: str) -> list[str]:
    dead = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists():
            dead.append(link)
        elif anchor and target.suffix == ".md":
            content = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in anchors(content):
                dead.append(link)
    return dead


class Links(unittest.TestCase):
    def test_they_lead_somewhere(self):
        self.assertGreater(len(pages()), 12)
        for page in pages():
            self.assertEqual(dead_links(page, page.read_text(encoding="utf-8")), [], page.name)

    def test_every_kernel_has_a_page_that_the_page_of_performance_leads_to(self):
        families = {path.parts[-3].replace("_", "-") for path in (ROOT / "src/cuda").glob("*/*/kernel.json")}
        families |= {path.parts[-2] for path in (ROOT / "src/cuda").glob("*/kernel.json")}
        wanted = {page_of(name) for name in families - WITHOUT_A_PAGE}
        self.assertGreater(len(wanted), 5)
        self.assertEqual([name for name in wanted if not (ROOT / "docs" / name).exists()], [])
        links = {link.partition("#")[0] for link in LINK.findall((ROOT / "docs/performance.md").read_text(encoding="utf-8"))}
        self.assertEqual(wanted - links, set())

    def test_a_dead_one_is_noticed(self):
        page = ROOT / "README.md"
        for text, dead in (("[a](docs/none.md)", ["docs/none.md"]), ("[a](docs/command.md)", []),
                           ("[a](docs/command.md#exit-codes)", []), ("[a](docs/cli.md#no)", ["docs/cli.md#no"]),
                           ("# A *b* c: d\n[a](#a-b-c-d) [b](#a-b)", ["#a-b"])):
            self.assertEqual(dead_links(page, text), dead, text)

    def test_sources_are_there(self):
        for page in pages():
            named = set(SOURCE.findall(page.read_text(encoding="utf-8")))
            missing = [name for name in named if "NAME" not in name and not (ROOT / name).exists()]
            self.assertEqual(missing, [], page.name)


if __name__ == "__main__":
    unittest.main()
