#!/usr/bin/env python3
"""Checks the includes of src/, bench/, evolve/ and cli/ against the arrows between rooms: dependencies point down.

usage: check_arrows.py [ROOT]    prints each include that no arrow allows; default: this repository

A room is a folder and everything below it; a file belongs to the first room that matches. `*`
stands for one folder, and every match is a room of its own, so that a kernel includes no other
kernel. Programs, the files directly in bench/, may include all rooms.
"""
import pathlib
import re
import sys

# Room: the rooms that it may include, besides itself. "include" is include/flashcore, the public headers.
ARROWS = {
    "problem": "include",
    "kernel": "include problem",
    "cpu": "include problem kernel",
    "cuda/ptx": "",
    "cuda/tile": "cuda/ptx",
    "cuda/attention": "problem cuda/ptx cuda/tile",
    "cuda/host": "include problem kernel cuda/attention",
    "cuda/launch": "include problem kernel cuda/host",
    "cuda/ladder": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host",
    # Code that the kernels of one architecture share.
    "cuda/*/common": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host cuda/launch",
    # The kernels.
    "cuda/*/*": "include problem kernel cuda/ptx cuda/tile cuda/attention cuda/host cuda/launch cuda/*/common",
    "tuning": "include problem kernel",
    "plan": "include problem kernel cpu cuda/ladder cuda/*/* tuning",
    "api": "include problem",
}
# The folders of bench/, each with access to the ones before it, and the additional rooms of src/ it needs.
BENCH = {"text": "", "process": "", "tensors": "", "io": "", "gate": "cpu", "cases": "cpu", "evidence": "plan",
         "device": "plan", "time": "cpu", "peers": "", "run": "plan", "verify": "cpu plan", "ladder": "plan",
         "report": "", "tune": "kernel plan tuning"}
for number, (folder, more) in enumerate(BENCH.items()):
    ARROWS[f"bench/{folder}"] = " ".join(
        ["include problem", more, *(f"bench/{lower}" for lower in list(BENCH)[:number])])
# The folders of evolve/, each with access to the ones before it and to the engine.
EVOLVE = ["runner", "task", "store", "propose", "evaluate", "loop", "show"]
for number, folder in enumerate(EVOLVE):
    ENGINE = [] if folder == "runner" else ["include problem", *(f"bench/{one}" for one in BENCH)]
    ARROWS[f"evolve/{folder}"] = " ".join([*ENGINE, *(f"evolve/{lower}" for lower in EVOLVE[:number])])
# The command: only subcommands. It may read the list of rungs, with names and texts.
ARROWS["cli"] = " ".join(["include problem cuda/ladder", *(f"bench/{folder}" for folder in BENCH),
                          *(f"evolve/{folder}" for folder in EVOLVE)])
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".in"}


def room_of(path: str) -> tuple[str, str] | None:
    """Returns the room's name in ARROWS and its folder, for a path as it is included."""
    for room in ARROWS:
        found = re.match(room.replace("*", "[^/]+") + "(?=/)", path)
        if found:
            return room, found[0]
    return None


def complaint(path: str, included: str, is_public: bool) -> str | None:
    """Returns why a file may not include another, or None. Paths are as they are included."""
    own = room_of(path)
    file = path if path.startswith(("bench/", "evolve/", "cli/")) else f"src/{path}"
    if own is None:
        return f"{file}: is in no room of scripts/check_arrows.py"
    if "/" not in included:
        return None  # generated for its own folder
    other = ("include", "include") if is_public else room_of(included)
    if other is None:
        return f"{file}: includes {included}, which is in no room"
    if own[1] == other[1]:
        return None
    is_allowed = other[0] in ARROWS[own[0]].split()
    if is_allowed and other[0] == "cuda/*/common":  # only its own architecture's
        is_allowed = own[1].rpartition("/")[0] == other[1].rpartition("/")[0]
    if is_allowed:
        return None
    return f"{file}: {own[1]} includes {included}; allowed: {ARROWS[own[0]] or 'nothing'}"


def files_of(root: pathlib.Path):
    """Yields every file of a room, and its path as it is included."""
    for tree in ("src", "bench", "evolve", "cli"):
        for file in sorted((root / tree).rglob("*")):
            is_in_room = tree == "cli" or file.parent != root / tree
            if file.suffix in SUFFIXES and is_in_room:
                yield file, file.relative_to(root / "src" if tree == "src" else root).as_posix()


def check(root: pathlib.Path) -> list[str]:
    found = []
    for file, path in files_of(root):
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
