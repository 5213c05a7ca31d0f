#!/usr/bin/env python3
"""The pages of the documentation: which there are, their hand-written part, and its words.

    pages.py                  prints the words of each page and of all
    pages.py PAGE...          only of these

Parts that a program writes or a test holds, fenced and indented code, and comments are not counted.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HELD = re.compile(r"<!-- (?:generated|tested): ([^>]*?) -->.*?<!-- end: \1 -->", re.DOTALL)
METHOD = re.compile(r"<!-- method -->.*?<!-- /method -->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
SPAN = re.compile(r"`[^`]+`")
TARGET = re.compile(r"\]\([^)\s]*\)")


def pages(root: pathlib.Path = ROOT) -> list[str]:
    found = [*root.glob("*.md"), *(root / "docs").glob("*.md"), *(root / "examples").glob("*.md")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def _blank(match: re.Match) -> str:
    """Lines keep their numbers."""
    return "\n" * match[0].count("\n")


def without(text: str, *patterns: re.Pattern) -> str:
    for pattern in patterns:
        text = pattern.sub(_blank, text)
    return text


def by_hand(text: str) -> str:
    """The sentences and tables that people write, with code in sentences."""
    return without(text, HELD, COMMENT, FENCE, INDENTED)


def words(text: str) -> int:
    return sum(any(c.isalnum() for c in word) for word in TARGET.sub("]", by_hand(text)).split())


def words_of(names: list[str], root: pathlib.Path = ROOT) -> dict[str, int]:
    return {name: words((root / name).read_text(encoding="utf-8")) for name in names}


def main() -> int:
    counts = words_of(sys.argv[1:] or pages())
    for name, count in counts.items():
        print(f"{count:6} {name}")
    print(f"{sum(counts.values()):6} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
