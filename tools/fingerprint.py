#!/usr/bin/env python3
"""Hashes kernels' sources, ignoring changes that do not affect behaviour.

One hash per kernel, over its files and all our files that they include. Comments, white space,
includes of our own files and file names do not count; of build files only the quoted strings count,
which hold the compiler's options. A CUDA kernel's files are its folder's (kernel.json) and those
that the kernels of its architecture share. Measurements of CUDA kernels are identified by their
machine code instead: machine_code.py.

    fingerprint.py --root .                     prints "cpu_simd source 0123456789abcdef" lines
    fingerprint.py --root . --output FILE       writes the CPU kernels' as rows of a C++ table
    fingerprint.py --root . --all FILE          for tables of measurements: the kernels of all devices,
                                                only from their own code and device code
"""
import argparse
import hashlib
import json
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


def closure(sources: list[pathlib.Path], src: pathlib.Path,
            rooms: tuple[str, ...] = ("",)) -> list[pathlib.Path]:
    """Returns the files and everything that they include from src/, or from these folders of it."""
    seen: set[pathlib.Path] = set()
    todo = list(sources)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        todo += [src / name for name in INCLUDE.findall(path.read_text(encoding="utf-8"))
                 if (src / name).is_file() and name.startswith(rooms)]
    return sorted(seen)


def meaning(path: pathlib.Path, src: pathlib.Path) -> str:
    """Returns C++ without comments, our own includes, and the space between its tokens."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".cmake":
        return "".join(re.findall(r'"[^"]*"', text))
    ours = re.compile(INCLUDE.pattern + r".*", re.MULTILINE)
    text = ours.sub(lambda found: "" if (src / found[1]).is_file() else found[0], text)
    parts: list[str] = []
    between = False  # a word ended, followed by a space
    for token in TOKEN.finditer(text):
        if token.lastgroup in ("comment", "space"):
            between = True
            continue
        if between and parts and (parts[-1][-1:] + token[0][:1]).replace("_", "a").isalnum():
            parts.append(" ")
        parts.append(token[0])
        between = False
    return "".join(parts)


def fingerprint(sources: list[pathlib.Path], src: pathlib.Path,
                rooms: tuple[str, ...] = ("",)) -> str:
    contents = sorted(meaning(path, src) for path in closure(sources, src, rooms))
    return PREFIX + hashlib.sha256("\0".join(contents).encode()).hexdigest()[:DIGITS]


def fingerprints(root: pathlib.Path, rooms: tuple[str, ...] = ("",)) -> dict[str, str]:
    src = root / "src"
    cpu = [path for path in sorted((src / "cpu").rglob("*")) if path.is_file()]
    judges = [path for path in cpu if path.name.startswith("reference")]
    kernels = {"cpu_simd": [path for path in cpu if path not in judges],
               "reference": judges, "naive": judges}
    return {name: fingerprint(files, src, rooms) for name, files in kernels.items() if files}


# The code that determines a kernel's time. The rooms below it define results, and change more often.
CPU_ROOMS = ("cpu/",)
CUDA_ROOMS = ("cuda/attention/", "cuda/tile/", "cuda/ptx/", "cuda/forward", "cuda/backward",
              "cuda/decode", "cuda/convert/", "cuda/ladder/")


def cuda_fingerprints(root: pathlib.Path) -> dict[str, str]:
    """Returns hashes by the names in kernel.json: one per family, for all variants."""
    src = (root / "src").resolve()
    found = {}
    for description in sorted((src / "cuda").rglob("kernel.json")):
        said = json.loads(description.read_text(encoding="utf-8"))
        own = description.parent
        others = {src / "cuda" / row["namespace"].replace("::", "/")  # whose kernels it has, too
                  for row in said.get("instances", {}).get("list", []) if "namespace" in row}
        files = {path for folder in (own, own.parent / "common", *others) for path in folder.rglob("*")
                 if path.suffix in (".hpp", ".cpp", ".cu", ".cuh", ".in")}
        found[said["name"]] = fingerprint(sorted(files), src, CUDA_ROOMS)
    return found


def write(path: pathlib.Path, text: str) -> None:
    """Writes only if the contents change: files that include it are then not recompiled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--all", type=pathlib.Path)
    options = parser.parse_args()
    found = fingerprints(options.root)
    if options.all is not None:
        found = fingerprints(options.root, CPU_ROOMS) | cuda_fingerprints(options.root)
    if (output := options.all or options.output) is not None:
        write(output, "".join(f'{{"{name}", "{value}"}},\n' for name, value in found.items()))
        return 0
    for name, value in found.items():
        print(name, value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
