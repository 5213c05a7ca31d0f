#!/usr/bin/env python3
"""Fingerprints of the CPU kernels' sources, without what changes no behaviour.

Of each kernel one, over its files and all of ours that they include. Comments, white space,
includes of our own files and the files' names are no part of it; of build files only their quoted
strings are, which hold the compiler's options. CUDA kernels are known by their machine code:
machine_code.py.

    fingerprint.py --root .                     prints "cpu_simd source 0123456789abcdef" lines
    fingerprint.py --root . --output FILE       writes them as rows of a C++ table, if they changed
"""
import argparse
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DIGITS = 16
PREFIX = "source "
TOKEN = re.compile(r"""
    (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<raw> R"(?P<end>[^()\s\\]{0,16})\(.*?\)(?P=end)" )
  | (?P<quoted> "(?:\\.|[^"\\\n])*" | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*' )
  | (?P<space> \s+ )
  | (?P<word> \w+ | . )""", re.VERBOSE | re.DOTALL)


def closure(sources: list[pathlib.Path], src: pathlib.Path) -> list[pathlib.Path]:
    """The files and everything below src/ that they include."""
    seen: set[pathlib.Path] = set()
    todo = list(sources)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        todo += [src / name for name in INCLUDE.findall(path.read_text(encoding="utf-8"))
                 if (src / name).is_file()]
    return sorted(seen)


def meaning(path: pathlib.Path, src: pathlib.Path) -> str:
    """C++ without comments, includes of ours, and the space between its tokens."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".cmake":
        return "".join(re.findall(r'"[^"]*"', text))
    ours = re.compile(INCLUDE.pattern + r".*", re.MULTILINE)
    text = ours.sub(lambda found: "" if (src / found[1]).is_file() else found[0], text)
    parts: list[str] = []
    between = False  # a word ended, and then came a space
    for token in TOKEN.finditer(text):
        if token.lastgroup in ("comment", "space"):
            between = True
            continue
        if between and parts and (parts[-1][-1:] + token[0][:1]).replace("_", "a").isalnum():
            parts.append(" ")
        parts.append(token[0])
        between = False
    return "".join(parts)


def fingerprint(sources: list[pathlib.Path], src: pathlib.Path) -> str:
    contents = sorted(meaning(path, src) for path in closure(sources, src))
    return PREFIX + hashlib.sha256("\0".join(contents).encode()).hexdigest()[:DIGITS]


def fingerprints(root: pathlib.Path) -> dict[str, str]:
    src = root / "src"
    cpu = [path for path in sorted((src / "cpu").rglob("*")) if path.is_file()]
    judges = [path for path in cpu if path.name.startswith("reference")]
    kernels = {"cpu_simd": [path for path in cpu if path not in judges],
               "reference": judges, "naive": judges}
    return {name: fingerprint(files, src) for name, files in kernels.items() if files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    found = fingerprints(options.root)
    if options.output is None:
        for name, value in found.items():
            print(name, value)
        return 0
    text = "".join(f'{{"{name}", 0, "{value}"}},\n' for name, value in found.items())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
