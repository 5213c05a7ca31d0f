#!/usr/bin/env python3
"""Fingerprints of the kernels' sources: one a kernel, over its files and all of ours they include.

A rung of the ladder is one .cu file; a production kernel is a folder of src/cuda with what
src/dispatch says about it; the CPU kernels are src/cpu.

    fingerprint.py --root .                     prints "ladder/04_wmma_pv 0123456789abcdef" lines
    fingerprint.py --root . --output FILE       writes them as rows of a C++ table, if they changed
"""
import argparse
import hashlib
import pathlib
import re
import sys

# What chooses between kernels changes nothing that any of them computes or costs.
CHOICES = {"dispatch/small_choice.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DIGITS = 16


def closure(sources: list[pathlib.Path], src: pathlib.Path) -> list[pathlib.Path]:
    """The files and everything below src/ that they include, in the order of their paths."""
    seen: set[pathlib.Path] = set()
    todo = list(sources)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            included = src / name
            if name not in CHOICES and included.is_file():
                todo.append(included)
    return sorted(seen)


def fingerprint(sources: list[pathlib.Path], src: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in closure(sources, src):
        digest.update(path.relative_to(src).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:DIGITS]


def kernel_sources(src: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """The files that make each kernel; a rung is named by its path below src/cuda."""
    base = src / "cuda"
    sources = {path.relative_to(base).with_suffix("").as_posix(): [path]
               for path in sorted((base / "ladder").glob("*.cu"))}
    for folder in sorted(base.glob("*/")):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if folder.name != "ladder" and any(".cu" in path.suffixes for path in files):
            sources[folder.name] = files + sorted((src / "dispatch").glob(f"{folder.name}*"))
    cpu = [path for path in sorted((src / "cpu").rglob("*")) if path.is_file()]
    if cpu:
        judges = [path for path in cpu if path.name.startswith("reference.")]
        sources["cpu_simd"] = [path for path in cpu if path not in judges]
        sources["reference"] = sources["naive"] = judges
    return sources


def fingerprints(root: pathlib.Path) -> dict[str, str]:
    src = root / "src"
    return {name: fingerprint(files, src) for name, files in kernel_sources(src).items()}


def kernel_fingerprint(all_fingerprints: dict[str, str], kernel: str) -> str:
    """As the library says it: of the rung or family whose name begins the kernel's."""
    names = [name for name in all_fingerprints if kernel.startswith(name.removeprefix("ladder/"))]
    longest = max(names, key=lambda name: len(name.removeprefix("ladder/")), default="")
    return all_fingerprints.get(longest, "")


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
