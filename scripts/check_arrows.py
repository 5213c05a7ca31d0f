#!/usr/bin/env python3
"""Holds the includes below src/ to the arrows between its rooms: dependencies point down only.

usage: check_arrows.py [ROOT]    prints each include that no arrow allows; default: this repository

A room is a folder and what lies below it; a file is in the first that fits it. `*` stands for one folder:
each that it matches is a room of its own, so that a kernel includes no other kernel.
"""
import pathlib
import re
import sys

# Room: the rooms it may include, besides itself. "include" is include/flashcore, the public headers.
ARROWS = {
    "problem": "include",
    "kernel": "include problem",
    "cpu": "include problem kernel",
    "cuda/ptx": "",
    "cuda/tile": "cuda/ptx",
    "cuda/attention": "problem cuda/ptx cuda/tile",
    "cuda/host": "include problem kernel cuda/attention",
    "cuda/ladder": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host",
    # What the kernels of one architecture share.
    "cuda/*/common": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host",
    # The kernels.
    "cuda/*/*": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host cuda/*/common",
    "tuning": "include problem kernel",
    "plan": "include problem kernel cpu cuda/ladder cuda/*/* tuning",
    "api": "include problem",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".in"}


def room_of(path: str) -> tuple[str, str] | None:
    """The room's name in ARROWS and its folder, of a path below src/."""
    for room in ARROWS:
        found = re.match(room.replace("*", "[^/]+") + "(?=/)", path)
        if found:
            return room, found[0]
    return None


def complaint(path: str, included: str, is_public: bool) -> str | None:
    """Why a file may not include another, or None. Paths are below src/."""
    own = room_of(path)
    if own is None:
        return f"src/{path}: is in no room of scripts/check_arrows.py"
    if "/" not in included:
        return None  # made by the build for its own folder
    other = ("include", "include") if is_public else room_of(included)
    if other is None:
        return f"src/{path}: includes {included}, which is in no room below src/"
    if own[1] == other[1]:
        return None
    is_allowed = other[0] in ARROWS[own[0]].split()
    if is_allowed and other[0] == "cuda/*/common":  # that of its own architecture
        is_allowed = own[1].rpartition("/")[0] == other[1].rpartition("/")[0]
    if is_allowed:
        return None
    return f"src/{path}: {own[1]} includes {included}; allowed: {ARROWS[own[0]] or 'nothing'}"


def check(root: pathlib.Path) -> list[str]:
    found = []
    for file in sorted((root / "src").rglob("*")):
        if file.suffix not in SUFFIXES or len(file.relative_to(root / "src").parts) == 1:
            continue
        path = file.relative_to(root / "src").as_posix()
        for included in INCLUDE.findall(file.read_text(encoding="utf-8")):
            said = complaint(path, included, (root / "include" / included).is_file())
            if said:
                found.append(said)
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    found = check(root)
    for line in found:
        print(line)
    print(f"arrows between rooms: {len(found)} broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
