#!/usr/bin/env python3
"""Fingerprints of the kernel sources: one a .cu file, over it and all of ours that it includes.

    fingerprint.py --root .                     prints "ladder/04_wmma_pv 0123456789abcdef" lines
    fingerprint.py --root . --output FILE       writes them as rows of a C++ table, if they changed
"""
import argparse
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DIGITS = 16


def closure(source: pathlib.Path, src: pathlib.Path) -> list[pathlib.Path]:
    """The file and everything below src/ that it includes, in the order of their paths."""
    seen: set[pathlib.Path] = set()
    todo = [source]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            included = src / name
            if included.is_file():
                todo.append(included)
    return sorted(seen)


def fingerprint(source: pathlib.Path, src: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in closure(source, src):
        digest.update(path.relative_to(src).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:DIGITS]


def fingerprints(root: pathlib.Path) -> dict[str, str]:
    """By the file's path below src/cuda, without its ending."""
    src = root / "src"
    base = src / "cuda"
    return {source.relative_to(base).with_suffix("").as_posix(): fingerprint(source, src)
            for source in sorted(base.rglob("*.cu"))}


def rung_fingerprint(all_fingerprints: dict[str, str], rung: str) -> str:
    """Of the file whose name begins the rung's name; empty when there is none."""
    stems = [name for name in all_fingerprints
             if name.startswith("ladder/") and rung.startswith(name.removeprefix("ladder/"))]
    return all_fingerprints[max(stems, key=len)] if stems else ""


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
    text = "".join(f'{{"{name}", "{value}"}},\n' for name, value in found.items())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
