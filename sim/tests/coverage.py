#!/usr/bin/env python3
"""Which lines of device code the tests of kernels run: a table by folder, from gcov's counts.

usage: coverage.py --build DIRECTORY [--run] [--jobs N] [--missing] [--wanted PERCENT]

DIRECTORY is a build with -DFLASHCORE_SIMULATOR=ON -DFLASHCORE_COVERAGE=ON. --run deletes the counts that are there and
runs the tests first; --missing lists the lines that did not run. A line counts as run when it is in any instance of a
kernel. The exit status is 1 when fewer than the wanted percentage of all lines ran (95).
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ROOT / "src/cuda"
HERE = pathlib.Path(__file__).resolve().parent


def counts_of(build, data):
    """{file: {line: how often}} of one object."""
    found = subprocess.run(["gcov", "--json-format", "--stdout", str(data.resolve())], cwd=build, capture_output=True,
                           text=True, check=True).stdout
    counts = collections.defaultdict(dict)
    for text in found.splitlines():
        for file in json.loads(text)["files"]:
            path = (build / file["file"]).resolve()
            if not path.is_relative_to(CODE):
                continue
            lines = counts[path.relative_to(CODE).as_posix()]
            for line in file["lines"]:
                lines[line["line_number"]] = max(lines.get(line["line_number"], 0), line["count"])
    return counts


def all_counts(build, jobs):
    data = sorted((build / "src/cuda").rglob("*.gcda"))
    if not data:
        sys.exit(f"{build} has no counts: wanted a build with -DFLASHCORE_COVERAGE=ON, whose tests have run")
    merged = collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for counts in pool.map(lambda one: counts_of(build, one), data):
            for file, lines in counts.items():
                for line, count in lines.items():
                    merged[file][line] = max(merged[file].get(line, 0), count)
    return merged


def ranges(lines):
    """[3, 4, 5, 9] as "3-5, 9"."""
    text, lines = [], sorted(lines)
    while lines:
        last = 0
        while last + 1 < len(lines) and lines[last + 1] == lines[last] + 1:
            last += 1
        text.append(str(lines[0]) if last == 0 else f"{lines[0]}-{lines[last]}")
        lines = lines[last + 1:]
    return ", ".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--run", action="store_true", help="run the tests of kernels first, from no counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--missing", action="store_true", help="list the lines that did not run")
    parser.add_argument("--wanted", type=float, default=95)
    options = parser.parse_args()
    build = options.build.resolve()
    if options.run:
        for data in build.rglob("*.gcda"):
            data.unlink()
        subprocess.run([sys.executable, str(HERE / "run_kernels.py"), "--build", str(build), "--jobs",
                        str(options.jobs)], check=True)
    merged = all_counts(build, options.jobs)
    folders = collections.defaultdict(lambda: [0, 0])
    for file, lines in merged.items():
        for folder in (os.path.dirname(file), "all"):
            folders[folder][0] += sum(count > 0 for count in lines.values())
            folders[folder][1] += len(lines)
    percent = 0
    print("| folder | lines | run | |\n| --- | --- | --- | --- |")
    for folder, (ran, lines) in sorted(folders.items(), key=lambda item: (item[0] == "all", item[0])):
        percent = 100 * ran / lines  # the last: of all
        print(f"| `{folder}` | {lines} | {ran} | {percent:.1f}% |")
    if options.missing:
        for file, lines in sorted(merged.items()):
            missed = [line for line, count in lines.items() if count == 0]
            if missed:
                print(f"{file}: {ranges(missed)}")
    return 1 if percent < options.wanted else 0


if __name__ == "__main__":
    sys.exit(main())
