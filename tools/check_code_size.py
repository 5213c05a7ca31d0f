#!/usr/bin/env python3
"""Checks that each family of kernels has at most so much device code per GPU architecture. Needs no GPU.

    check_code_size.py BUILD              prints the table, then each family that is over its budget

The most is "code_kb" of its kernel.json. Sizes are those of the device programs (ELF images) in the build's objects, including symbols: as the
library contains them. The build's cuda_objects.txt lists its objects; a reused folder contains others, too.
"""
import argparse
import collections
import pathlib
import sys

from cubin import programs_of
from kernel_folders import Folder, folders

KB = 1024
OBJECTS = "cuda_objects.txt"  # written when the build is configured


def sizes(build: pathlib.Path, kernels: list[Folder]) -> dict[tuple[str, str], int]:
    """Returns bytes by family and target."""
    base = build / "src/cuda/CMakeFiles/flashcore_cuda.dir"
    total: dict[tuple[str, str], int] = collections.defaultdict(int)
    for line in (build / OBJECTS).read_text(encoding="utf-8").splitlines():
        path = pathlib.Path(line)
        if not line.endswith(".cu.o") or not path.exists():
            continue
        file = path.resolve().relative_to(base.resolve()).as_posix().removesuffix(".cu.o")
        for kernel in kernels:
            if kernel.object_name(file) is not None:
                for target, program in programs_of(path.read_bytes()):
                    total[kernel.name, f"sm_{target}"] += len(program)
    return total


def complaints(found: dict[tuple[str, str], int], kernels: list[Folder]) -> list[str]:
    """Returns what is wrong with sizes, as sentences."""
    most = {kernel.name: kernel.code_kb * KB for kernel in kernels}
    over = [f"over budget: {name} has {size} bytes of code for {target}, at most {most[name]}"
            for (name, target), size in sorted(found.items()) if size > most[name]]
    return over + [f"{name}: no device code was found: build the CUDA kernels first"
                   for name in most if not any(name == built for built, _ in found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    kernels = folders()
    found = sizes(options.build, kernels)
    for kernel in kernels:
        for target in sorted(target for name, target in found if name == kernel.name):
            print(f"{kernel.name:<26} {target:<7} {found[kernel.name, target] / KB:8.0f} KB of {kernel.code_kb} KB")
    problems = complaints(found, kernels)
    print(*problems, sep="\n", end="", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
