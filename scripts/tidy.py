#!/usr/bin/env python3
"""clang-tidy over every C and C++ file of a build, on all cores.

A file whose preprocessed text passed before is not checked again: what passed is remembered in
.cache/tidy, by a hash of that text, the command and .clang-tidy.

usage: tidy.py BUILD_DIRECTORY CLANG_TIDY
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSED = ROOT / ".cache" / "tidy"


def key_of(entry, settings):
    """A hash of all that the verdict on a file depends on."""
    command = shlex.split(entry["command"])
    if os.path.basename(command[0]) == "ccache":
        command = command[1:]
    output = command.index("-o")
    preprocess = command[:output] + command[output + 2:] + ["-E", "-P"]
    text = subprocess.run(preprocess, cwd=entry["directory"], capture_output=True, check=True).stdout
    return hashlib.sha256(b"\0".join([text, entry["command"].encode(), settings])).hexdigest()


def check(entry, build, tidy, settings):
    """Returns (file, None when it passes, otherwise what clang-tidy printed)."""
    path = pathlib.Path(entry["file"])
    mark = PASSED / key_of(entry, settings)
    if mark.exists():
        return path, None
    result = subprocess.run(
        [tidy, "-p", build, "--quiet", "--warnings-as-errors=*",
         "--extra-arg=-Wno-unknown-warning-option", str(path)],
        capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return path, result.stdout + result.stderr
    mark.touch()
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
        if path.suffix in (".c", ".cpp") and path.is_relative_to(ROOT):
            entries.setdefault(path, entry)
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, entry, build, tidy, settings) for entry in entries.values()]
        for job in concurrent.futures.as_completed(jobs):
            path, complaint = job.result()
            if complaint is not None:
                failures += 1
                print(f"{path.relative_to(ROOT)}:\n{complaint}", flush=True)
    print(f"clang-tidy: {len(entries)} files, {failures} with warnings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
