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
import struct
import sys

KB = 1024
ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = 0xBA55ED50
FATBIN_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
ENTRY_HEADER = struct.Struct("<HHIQIIII")  # kind, -, bytes of this header, bytes after it, -, -, -, sm
ELF_ENTRY = 2


def section(elf: bytes, name: str) -> bytes:
    """The contents of a section of a 64-bit little-endian ELF file; empty when it has none."""
    if elf[:6] != ELF_MAGIC + b"\x02\x01":
        return b""
    table, = struct.unpack_from("<Q", elf, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        at = table + index * entry_bytes
        name_offset, = struct.unpack_from("<I", elf, at)
        offset, size = struct.unpack_from("<QQ", elf, at + 0x18)
        return name_offset, offset, size

    _, names, _ = header(names_index)
    for index in range(count):
        name_offset, offset, size = header(index)
        start = names + name_offset
        if elf[start:elf.index(b"\0", start)].decode() == name:
            return elf[offset:offset + size]
    return b""


def device_programs(fatbin: bytes) -> list[tuple[str, int]]:
    """Target and size of each device program in the containers of a .nv_fatbin section."""
    found = []
    at = 0
    while at + FATBIN_HEADER.size <= len(fatbin):
        magic, _, header, size = FATBIN_HEADER.unpack_from(fatbin, at)
        if magic != FATBIN_MAGIC:
            at += 8  # containers are padded to their alignment
            continue
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, entry_size, _, _, _, sm = ENTRY_HEADER.unpack_from(fatbin, entry)
            if kind == ELF_ENTRY:
                found.append((f"sm_{sm}", entry_size))
            entry += entry_header + entry_size
        at = end
    return found


def sizes(build: pathlib.Path, families: list[dict]) -> dict[tuple[str, str], int]:
    """Bytes by family and target."""
    base = build / "src/cuda/CMakeFiles/flashcore_cuda.dir"
    total: dict[tuple[str, str], int] = collections.defaultdict(int)
    for path in sorted(base.rglob("*.cu.o")):
        file = path.relative_to(base).as_posix().removesuffix(".cu.o")
        for family in families:
            if any(fnmatch.fnmatchcase(file, pattern) for pattern in family["files"]):
                for target, size in device_programs(section(path.read_bytes(), ".nv_fatbin")):
                    total[family["name"], target] += size
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
