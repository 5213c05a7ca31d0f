#!/usr/bin/env python3
"""Renames a kernel in all evidence: its rows keep their machine code.

    rename_kernel.py OLD NEW [--root .]

Files that are named after the kernel (verify-OLD.json) are renamed, too. Notes that people wrote
are not changed. tools/report.py regenerates the pages.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting.evidence import Failure, read, write  # noqa: E402

NAMED_BY = ("implementation", "kernel", "chosen", "name")  # members whose value is a kernel's name
NAMED_IN = ("fingerprints", "sanitizers")  # members whose own members are kernels' names


class Renaming:
    def __init__(self, old: str, new: str):
        self.old, self.new = old, new
        self.count = 0

    def name(self, text: str) -> str:
        """`text` may add after a space how the kernel ran."""
        kernel, space, how = text.partition(" ")
        if kernel == self.new:
            raise Failure(f"NEW: is '{self.new}', which the evidence has already, wanted another name")
        if kernel != self.old:
            return text
        self.count += 1
        return self.new + space + how

    def of(self, value, member: str = ""):
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if isinstance(value, dict):
            return {self.name(key) if member in NAMED_IN else key: self.of(one, key)
                    for key, one in value.items()}
        return self.name(value) if member in NAMED_BY and isinstance(value, str) else value


def rename(folder: pathlib.Path, old: str, new: str) -> list[str]:
    """Returns the changed files. All are read before anything is written."""
    changed = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "schema.json":
            continue
        renaming = Renaming(old, new)
        evidence = renaming.of(read(path))
        parts = path.stem.split("-")
        stem = "-".join(new if part == old else part for part in parts)
        if renaming.count or stem != path.stem:
            changed[path] = (path.with_stem(stem), evidence)
    if not changed:
        raise Failure(f"OLD: is '{old}', wanted a kernel that is in {folder}")
    for path, (target, evidence) in changed.items():
        write(target, evidence)
        if target != path:
            path.unlink()
    return [target.name for target, _ in changed.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    try:
        names = rename(options.root / "docs/evidence", options.old, options.new)
    except Failure as failure:
        print(f"rename_kernel: {failure}", file=sys.stderr)
        return 1
    print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
