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

    def test_the_page_of_performance_leads_to_that_of_each_kernel(self):
        folders = [folder.name.replace("_", "-") for folder in (ROOT / "src/cuda").iterdir()]
        kernels = {f"{name}.md" for name in folders if (ROOT / f"docs/{name}.md").exists()}
        self.assertGreater(len(kernels), 8)
        text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
        self.assertEqual(kernels - set(LINK.findall(text)), set())

    def test_a_dead_one_is_noticed(self):
        page = ROOT / "README.md"
        for text, dead in (("[a](docs/none.md)", ["docs/none.md"]), ("[a](docs/cli.md)", []),
                           ("[a](docs/cli.md#times)", []), ("[a](docs/cli.md#no)", ["docs/cli.md#no"]),
                           ("# A *b* c: d\n[a](#a-b-c-d) [b](#a-b)", ["#a-b"])):
            self.assertEqual(dead_links(page, text), dead, text)

    def test_sources_are_there(self):
        for page in pages():
            named = set(SOURCE.findall(page.read_text(encoding="utf-8")))
            missing = [name for name in named if "NAME" not in name and not (ROOT / name).exists()]
            self.assertEqual(missing, [], page.name)


if __name__ == "__main__":
    unittest.main()
