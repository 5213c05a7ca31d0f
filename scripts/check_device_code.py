#!/usr/bin/env python3
"""Checks the sources below src/cuda for rules that keep kernel bodies portable: they also compile
as plain C++ with other versions of src/cuda/ptx and of the launch functions.

usage: check_device_code.py [ROOT]    prints each line that breaks a rule; default: this repository
"""
import pathlib
import re
import sys

PTX, LAUNCH = "src/cuda/ptx/", ("src/cuda/launch/start.cpp", "src/cuda/host/launch_kernel.hpp")
# Pattern, where it is allowed, and what to use elsewhere.
RULES = [
    (re.compile(r"\b(?:asm|__asm__)\b"), PTX, "a wrapper of ptx/, or pin and opaque of ptx/pin.cuh"),
    (re.compile(r"\b__(?:builtin|nvvm)_\w+|\b__isGlobal\b|\b__cvta_\w+"), PTX, "a wrapper of ptx/"),
    (re.compile(r"\b__shared__\b"), PTX + "shared_", "dynamic_shared or static_shared"),
    (re.compile(r"<<<"), "nowhere", "Launcher of launch/launch.hpp"),
    (re.compile(r"\b(?:cudaLaunch|cuLaunch)(?!Attribute|Config)\w*"), LAUNCH, "Launcher of launch/launch.hpp"),
]
COMMENT = re.compile(r"//.*")
SUFFIXES = {".h", ".cpp", ".hpp", ".cu", ".cuh", ".in"}


def check(root: pathlib.Path) -> list[str]:
    found = []
    for file in sorted((root / "src/cuda").rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            code = COMMENT.sub("", line)
            for pattern, allowed, instead in RULES:
                match = pattern.search(code)
                if match and not path.startswith(allowed):
                    found.append(f"{path}:{number}: has {match[0]}, wanted {instead}")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    found = check(root)
    for line in found:
        print(line)
    print(f"device code: {len(found)} lines that only nvcc can read, outside of ptx/ and launches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
