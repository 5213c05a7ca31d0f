#!/usr/bin/env python3
"""Holds each kernel family to its budget of device code for one GPU architecture. Needs no GPU.

    check_code_size.py BUILD              the table, then each family that is over its budget

Sizes are those of the device programs (ELF images) inside of the build's objects, with symbols and
all: what the library carries. Budgets are data: "code_sizes" of tools/resource_budgets.json.
"""
import argparse
import collections
import fnmatch
import json
import pathlib
import sys

from cubin import programs_of

KB = 1024


def sizes(build: pathlib.Path, families: list[dict]) -> dict[tuple[str, str], int]:
    """Bytes by family and target."""
    base = build / "src/cuda/CMakeFiles/flashcore_cuda.dir"
    total: dict[tuple[str, str], int] = collections.defaultdict(int)
    for path in sorted(base.rglob("*.cu.o")):
        file = path.relative_to(base).as_posix().removesuffix(".cu.o")
        for family in families:
            if any(fnmatch.fnmatchcase(file, pattern) for pattern in family["files"]):
                for target, program in programs_of(path.read_bytes()):
                    total[family["name"], f"sm_{target}"] += len(program)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--budgets", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("resource_budgets.json"))
    options = parser.parse_args()
    families = json.loads(options.budgets.read_text(encoding="utf-8"))["code_sizes"]
    budget = {family["name"]: family["bytes"] for family in families}
    found = sizes(options.build, families)
    over = False
    for (family, target), size in sorted(found.items()):
        print(f"{family:<16} {target:<7} {size / KB:8.0f} KB of {budget[family] / KB:.0f} KB")
        if size > budget[family]:
            over = True
            print(f"over budget: {family} has {size} bytes of code for {target}, at most "
                  f"{budget[family]}", file=sys.stderr)
    for name in budget:
        if not any(family == name for family, _ in found):
            over = True
            print(f"{name}: no device code was found: build the CUDA kernels first",
                  file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
