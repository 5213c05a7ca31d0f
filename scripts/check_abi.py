#!/usr/bin/env python3
"""Compares the C interface of a built library with abi/flashcore.abi, by libabigail (package abigail-tools).

usage: check_abi.py [--write] BUILD_DIRECTORY

A change that breaks programs which were built before fails, unless the SONAME changes with it. One that breaks nothing
only asks for `--write`, which brings the file up to date. docs/stability.md says which changes are which.

Types come from the public header alone: it is compiled as C with an empty body for each function and a variable for each
list of constants. Names, their versions and the SONAME come from the library.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "include/flashcore/flashcore.h"
KNOWN = ROOT / "abi/flashcore.abi"
EXPORTS = ROOT / "src/api/exports.map"
PLACES = ["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed"]  # that are left out


def run(*command, folder: pathlib.Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)


def output(*command, folder: pathlib.Path | None = None) -> str:
    done = run(*command, folder=folder)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def with_bodies(header: str) -> str:
    text = re.sub(r"^(FLASHCORE_API [^;]+);", r"\1 { __builtin_trap(); }", header, flags=re.MULTILINE)
    return re.sub(r"^enum \{(\s*(?:/\*.*?\*/\s*)*(\w+)[^}]*)\};", r"FLASHCORE_API enum {\1} flashcore_values_\2;", text,
                  flags=re.MULTILINE | re.DOTALL)


def growing(header: str) -> str:
    """Suppresses new members at the end of structs that begin with their size: those are compatible."""
    names = re.findall(r"^typedef struct (\w+) \{\s*size_t struct_size;", header, re.MULTILINE)
    return (f"[suppress_type]\n type_kind = struct\n name_regexp = ^({'|'.join(names)})$\n"
            " has_data_member_inserted_at = end\n")


def symbols(library: pathlib.Path) -> set[str]:
    """With their versions."""
    return set(re.findall(r" [TB] (flashcore_\S+)$", output("nm", "-D", "--defined-only", library), re.MULTILINE))


def soname(library: pathlib.Path) -> str:
    return re.search(r"\(SONAME\).*\[(.+)\]", output("readelf", "-dW", library))[1]


def described(header: str, name: str, exports: pathlib.Path, folder: pathlib.Path) -> tuple[str, set[str]]:
    """The description of this header's interface in a library of that name, and its functions."""
    (folder / "api.c").write_text(with_bodies(header), encoding="utf-8")
    output("gcc", "-std=c2x", "-w", "-g", "-O0", "-fPIC", "-shared", "-DFLASHCORE_SHARED", "-fvisibility=hidden",
           f"-Wl,-soname,{name}", f"-Wl,--version-script={exports}", "api.c", "-o", "api.so", folder=folder)
    text = output("abidw", *PLACES, "--type-id-style", "hash", "api.so", folder=folder)
    return text, {one for one in symbols(folder / "api.so") if "flashcore_values_" not in one}


def compare(known: str, now: str, suppressions: str) -> list[str]:
    """What has changed: nothing, or the reason to refuse it and abidiff's report."""
    with tempfile.TemporaryDirectory() as folder:
        before, after, growth = (pathlib.Path(folder) / name for name in ("before.abi", "after.abi", "growth"))
        for path, text in ((before, known), (after, now), (growth, suppressions)):
            path.write_text(text, encoding="utf-8")
        broken = run("abidiff", "--no-added-syms", "--suppressions", growth, before, after)
        changed = run("abidiff", "--harmless", before, after)
    is_renamed = "SONAME changed" in changed.stdout
    if broken.returncode != 0 and not is_renamed:
        return ["Programs that were built before would break, and the SONAME is the same:", broken.stdout + broken.stderr]
    if changed.returncode != 0:
        return ["abi/flashcore.abi is old: run scripts/check_abi.py --write", changed.stdout + changed.stderr]
    return []


def main() -> int:
    arguments = [one for one in sys.argv[1:] if one != "--write"]
    library = pathlib.Path(arguments[0]) / "src/libflashcore.so"
    header = HEADER.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        now, wanted = described(header, soname(library), EXPORTS, pathlib.Path(folder))
    exported = symbols(library)
    if wanted != exported:
        print("Not in both, the header and the library:", *sorted(wanted ^ exported), sep="\n")
        return 1
    found = compare(KNOWN.read_text(encoding="utf-8"), now, growing(header)) if KNOWN.exists() else []
    if "--write" in sys.argv and (not found or "is old" in found[0]):
        KNOWN.write_text(now, encoding="utf-8")
        found = []
    print(*found, f"The C interface: {len(exported)} functions of {soname(library)}", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
