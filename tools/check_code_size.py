#!/usr/bin/env python3
"""Checks that each kernel's folder has at most 4 MB of device code per GPU architecture. Needs no GPU.

    check_code_size.py BUILD              prints the table, then each folder that is over its budget

Sizes are those of the device programs (ELF images) in the build's objects, including symbols: as the
library contains them. The build's cuda_objects.txt lists its objects; a reused folder contains others, too.
"""
import argparse
import collections
import pathlib
import sys

from cubin import programs_of
from kernel_folders import Folder, folders

KB = 1024
MOST = 4 << 20
OBJECTS = "cuda_objects.txt"  # written when the build is configured


def sizes(build: pathlib.Path, kernels: list[Folder]) -> dict[tuple[str, str], int]:
    """Returns bytes by kernel and target."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    kernels = folders()
    found = sizes(options.build, kernels)
    over = False
    for (kernel, target), size in sorted(found.items()):
        print(f"{kernel:<26} {target:<7} {size / KB:8.0f} KB of {MOST / KB:.0f} KB")
        if size > MOST:
            over = True
            print(f"over budget: {kernel} has {size} bytes of code for {target}, at most {MOST}",
                  file=sys.stderr)
    for kernel in kernels:
        if not any(name == kernel.name for name, _ in found):
            over = True
            print(f"{kernel.name}: no device code was found: build the CUDA kernels first",
                  file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
