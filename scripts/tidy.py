#!/usr/bin/env python3
"""clang-tidy over the C and C++ files of a build that are not tests, on all cores.

A file that passed before is not checked again: what passed is remembered in .cache/tidy, by a hash
of all files that ninja knows its object to be made of, the command and .clang-tidy.

The library comes first. After FLASHCORE_TIDY_SECONDS (default 900) no further
file is begun, and those that were left out are counted.

usage: tidy.py BUILD_DIRECTORY CLANG_TIDY
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSED = ROOT / ".cache" / "tidy"


def dependencies(build):
    """What ninja noted of each object of a build: {path of the object: paths that it was made of}."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                          check=True).stdout
    found, current = {}, None
    for line in text.splitlines():
        if not line.startswith(" "):
            current = found.setdefault(line.split(": #deps")[0], []) if "(VALID)" in line else []
        elif current is not None:
            current.append(line.strip())
    return found


@functools.cache
def digest_of(path):
    return hashlib.sha256(path.read_bytes()).digest()


def key_of(entry, made_of, settings):
    """A hash of all that the verdict on a file depends on, or None when it is not built."""
    folder = pathlib.Path(entry["directory"])
    words = shlex.split(entry["command"])
    files = made_of.get(words[words.index("-o") + 1])
    if files is None or not all((folder / name).is_file() for name in files):
        return None
    parts = [digest_of(folder / name) for name in files]
    return hashlib.sha256(b"\0".join([*parts, entry["command"].encode(), settings])).hexdigest()


NOT_REACHED = object()
ORDER = ["src", "cli", "bench"]


def check(entry, made_of, build, tidy, settings, deadline):
    """Returns (file, None when it passes, otherwise what clang-tidy printed, or NOT_REACHED)."""
    path = pathlib.Path(entry["file"])
    key = key_of(entry, made_of, settings)
    if key is not None and (PASSED / key).exists():
        return path, None
    if time.monotonic() > deadline:
        return path, NOT_REACHED
    result = subprocess.run(
        [tidy, "-p", build, "--quiet", "--warnings-as-errors=*",
         "--extra-arg=-Wno-unknown-warning-option", str(path)],
        capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return path, result.stdout + result.stderr
    if key is not None:
        (PASSED / key).touch()
    return path, None


def main():
    build, tidy = sys.argv[1:3]
    PASSED.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    settings = (ROOT / ".clang-tidy").read_bytes() + version
    entries = {}
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        # nvcc's files are not for clang-tidy; each other file once, with its first command.
        checked = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ORDER
        if path.suffix in (".c", ".cpp") and checked:
            entries.setdefault(path, entry)
    deadline = time.monotonic() + float(os.environ.get("FLASHCORE_TIDY_SECONDS", "900"))
    wanted = sorted(entries.values(), key=lambda entry: (
        ORDER.index(pathlib.Path(entry["file"]).relative_to(ROOT).parts[0]), entry["file"]))
    made_of = dependencies(build)
    failures = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, entry, made_of, build, tidy, settings, deadline) for entry in wanted]
        for job in concurrent.futures.as_completed(jobs):
            path, complaint = job.result()
            if complaint is NOT_REACHED:
                left_out += 1
            elif complaint is not None:
                failures += 1
                print(f"{path.relative_to(ROOT)}:\n{complaint}", flush=True)
    print(f"clang-tidy: {len(wanted)} files, {failures} with warnings, "
          f"{left_out} left out for lack of time")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
