#!/usr/bin/env python3
"""Habits of language that make pages, comments and names hard to read: each line that has one.

usage: check_words.py [ROOT]    default: this repository

Pages and comments may have none. Names that were replaced may not return, except where a line says that they are former or
deprecated.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import pages  # noqa: E402

FOLDERS = ("src/api", "src/cpu", "src/cuda", "src/kernel", "src/plan", "src/problem", "src/tuning", "include", "cli",
           "bench", "evolve", "sim", "python", "rust", "tools", "scripts", "tests", "cmake")
# The habit, and what to write.
HABITS = [
    (r"\ban SM\b", "per SM"),
    (r"\banew\b", "again"),
    (r"\bof which\b", "a sentence of its own"),
    (r"\bthat of\b", "the noun"),
    (r"\bthose of\b", "the noun"),
    (r"\bwhose [^.]{1,60}? is none\b", "'without'"),
    (r"\bin turn\b", "'deterministic', or 'one after the other'"),
    (r"\bbeside\b", "'compared with', 'next to' or 'together with'"),
]
# How a comment may not begin: its subject comes first.
BEGINNING = re.compile(r"^/?\s*(Of|By|Whether|The same)\b")
# Text that such a name has, the part of it that is wrong, and what takes its place.
NAMES = [(text, re.compile(pattern), instead) for text, pattern, instead in (
    ("_a", r"(?:s|memory|flop|peak)_an?_(?:sm|block|multiprocessor|second|us|clock|sample|job|split|part|tile|row|span|pair)_?\b", "'per'"),
    ("sA", r"\bk\w*sA(?:Block|Split|Strip|Tile|Chunk|Clock|Us)", "'Per'"),
    ("in_turn", r"in_turn\b", "'deterministic'"),
    ("InTurn", r"InTurn\b", "'deterministic'"),
    ("thread_anew", r"\bthread_anew\b", "'reload_thread_index'"),
    ("by_name_because", r"\bby_name_because\b", "'not_automatic_reason'"),
    ("seen_by_choice", r"\bseen_by_choice", "'problem_for_heuristics'"),
    ("BatchCompany", r"\bBatchCompany\b", "'BatchInvarianceCases'"),
    ("off_the_table", r"\boff_the_table\b", "'page_out_of_range'"),
    ("made_up_kernels", r"\bmade_up_kernels\b", "'kernel_stubs'"),
    ("tand_in", r"[Ss]tand_in(?!g)", "'stub'"),
    ("STAND_IN", r"STAND_IN(?!G)", "'stub'"),
    ("StandIn", r"StandIn", "'stub'"),
    ("tand-in", r"\b[Ss]tand-in", "'stub'"),
    ("lanted", r"\b[Pp]lanted faults?\b|\b[Ff]aults planted\b", "'injected'"),
    ("notes_of_rows", r"\bnotes_of_rows\b", "'row_stats'"),
    ("gains_by_three", r"\bgains_by_three\b", "'192x64'"),
    ("columns_kernel", r"\bcolumns_kernel\b", "'v_transposed'"),
    ("Cover::", r"\bCover::", "'TileBounds'"))]
FORMER = re.compile(r"former|deprecated", re.IGNORECASE)
COMMENTS = {
    "c": re.compile(r"//(.*)|^\s*/?\*+(?!\w)(.*)"),
    "#": re.compile(r'(?<![\w$"\'{(])#(.*)'),
}
LANGUAGES = {".cpp": "c", ".hpp": "c", ".cu": "c", ".cuh": "c", ".c": "c", ".h": "c", ".rs": "c", ".py": "#", ".sh": "#",
             ".cmake": "#", ".txt": "#"}


def in_page(text: str) -> list[tuple[int, str, str]]:
    """Line, habit, and what to write. A line end is a space."""
    text = pages.without(pages.by_hand(text), pages.SPAN)
    found = []
    for pattern, instead in HABITS:
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(spaced, text, re.IGNORECASE):
            found.append((text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead))
    return sorted(found)


def in_comments(suffix: str, text: str) -> list[tuple[int, str, str]]:
    found = []
    comment = COMMENTS[LANGUAGES[suffix]]
    for number, line in enumerate(text.splitlines(), 1):
        match = comment.search(line)
        said = "".join(part or "" for part in match.groups()) if match else ""
        if beginning := BEGINNING.match(said):
            found.append((number, beginning[1], "a sentence with its subject first"))
        for pattern, instead in HABITS:
            if habit := re.search(pattern, said, re.IGNORECASE):
                found.append((number, habit[0], instead))
    return found


def in_names(text: str) -> list[tuple[int, str, str]]:
    """Line, name, and what to write. A list of former names ends with its bracket."""
    text = re.sub(r'"former_keys": \{[^}]*\}', lambda found: "\n" * found[0].count("\n"), text)
    found = []
    for part, pattern, instead in NAMES:
        for match in pattern.finditer(text) if part in text else ():
            line = text[text.rfind("\n", 0, match.start()) + 1:].split("\n", 1)[0]
            name = re.search(r"\w*$", text[:match.start()])[0] + match[0]
            if not FORMER.search(line) and not name.startswith("test_"):
                found.append((text.count("\n", 0, match.start()) + 1, name, instead))
    return sorted(found)


def check(root: pathlib.Path) -> list[str]:
    found = []
    for name in pages.pages(root):
        text = (root / name).read_text(encoding="utf-8")
        found += [f"{name}:{line}: '{habit}', wanted {instead}" for line, habit, instead in in_page(text) + in_names(text)]
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (*LANGUAGES, ".json") or "target" in file.parts or not file.is_file():
                continue
            if file.name == "check_words.py" or file.name == "pages_test.py":
                continue  # they have the list
            text = file.read_text(encoding="utf-8", errors="replace")
            habits = in_comments(file.suffix, text) if file.suffix in LANGUAGES else []
            found += [f"{file.relative_to(root)}:{line}: '{habit}', wanted {instead}"
                      for line, habit, instead in habits + in_names(text)]
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pages.ROOT
    found = check(root)
    for line in found:
        print(line)
    print(f"words: {len(found)} lines with a habit that hides the meaning")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
