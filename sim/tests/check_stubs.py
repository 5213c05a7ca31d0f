#!/usr/bin/env python3
"""Every file and function of src/cuda/ptx, and every product of tools/wgmma.py, has a stub in sim/cuda/ptx.

usage: check_stubs.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import wgmma  # noqa: E402

NAME = re.compile(r"^[^\n/#]*?\b(\w+)\([^;{]*\)\s*\{", re.M)
WORDS = {"if", "while", "for", "switch", "requires"}


def functions(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^template <.*>$", "", text, flags=re.M)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)  # braces inside of instructions
    return {name for name in NAME.findall(text) if name not in WORDS}


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted((root / "src/cuda/ptx").glob("*.cuh"))
    missing, checked = [], 0
    for path in files:
        stub = root / "sim/cuda/ptx" / path.name
        if not stub.is_file():
            missing.append(f"{path.name}: no file sim/cuda/ptx/{path.name}")
            continue
        have = functions(stub.read_text())
        wanted = functions(path.read_text())
        if path.name == "wgmma.cuh":
            wanted |= functions(wgmma.text())
        checked += len(wanted)
        missing += [f"{path.name}: {name}" for name in sorted(wanted - have)]
    for line in missing:
        print(f"no host version: {line}")
    print(f"{checked} functions of {len(files)} files, {len(missing)} without a host version")
    return 1 if missing or checked < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
