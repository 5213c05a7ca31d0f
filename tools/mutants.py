#!/usr/bin/env python3
"""Plants small faults in the host code, one at a time, and sees whether the tests notice.

    mutants.py                      all of tools/mutants.json; what is done is kept, so that it can be
                                    stopped and started again
    mutants.py --only forward       those whose name or file has it
    mutants.py --jobs 2             so many trees side by side
    mutants.py --write              docs/evidence/mutants.json from what is done

A mutant is a text that occurs once in a file, what stands in its place, and the tests that are to
notice: programs with a GoogleTest filter. It is noticed when a program fails or takes too long. One
that does not compile says nothing about the tests, and is none. docs.report and other tests of
sources are not asked: they fail with any change. The trees, their build folders (-O1, no CUDA) and
the results are in build-mutants.
"""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import platform
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting.evidence import write  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tools/mutants.json"
FOLDER = ROOT / "build-mutants"
RESULTS = FOLDER / "results.json"
EVIDENCE = ROOT / "docs/evidence/mutants.json"
BUILD_SECONDS, TEST_SECONDS = 1800, 300


class Failure(Exception):
    """A sentence for the person who ran this."""


def run(command: list[str], folder: pathlib.Path, seconds: float) -> tuple[bool, str]:
    """Whether it succeeded in time, and its output."""
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
        return done.returncode == 0, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return False, f"took more than {seconds} s"


def tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                          cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


class Tree:
    """A copy of the sources with a build folder of its own."""

    def __init__(self, number: int):
        self.sources = FOLDER / f"tree-{number}"
        self.build = FOLDER / f"build-{number}"

    def copy(self) -> None:
        names = tracked_files()
        for name in names:
            there = self.sources / name
            content = (ROOT / name).read_bytes()
            if there.exists() and there.read_bytes() == content:
                continue  # its time stays, so it is not compiled again
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(content)
        kept = set(names)
        for path in self.sources.rglob("*"):
            if path.is_file() and str(path.relative_to(self.sources)) not in kept:
                path.unlink()
        if (self.build / "build.ninja").exists():
            return
        command = ["cmake", "-S", str(self.sources), "-B", str(self.build), "-G", "Ninja",
                   "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -w",
                   "-DFLASHCORE_TESTS=ON", "-DFLASHCORE_CUDA=OFF"]
        succeeded, output = run(command, FOLDER, BUILD_SECONDS)
        if not succeeded:
            raise Failure(f"cmake: {output[-2000:]}")

    def compile(self, programs: list[str]) -> tuple[bool, str]:
        return run(["ninja", *programs], self.build, BUILD_SECONDS)

    def notices(self, tests: dict[str, str]) -> str:
        """The first program that fails, and its first failure."""
        for program, which in tests.items():
            path = next(path for path in self.build.rglob(program) if path.is_file())
            succeeded, output = run([str(path), f"--gtest_filter={which}", "--gtest_brief=1",
                                     "--gtest_fail_fast"], self.build, TEST_SECONDS)
            if not succeeded:
                failed = [line.split("]")[1].split("(")[0].strip() for line in output.splitlines()
                          if line.startswith("[  FAILED  ]")]
                return f"{program}: {failed[0] if failed else 'did not end well'}"
        return ""


def mutants() -> list[dict]:
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    names = [one["name"] for one in listed]
    for name in names:
        if names.count(name) > 1:
            raise Failure(f"{LIST.name}: '{name}' is there twice")
    return listed


def key_of(mutant: dict) -> str:
    """Changes with the mutant and its file; a new test does not make it run again."""
    content = (ROOT / mutant["file"]).read_bytes()
    return hashlib.sha256(json.dumps(mutant, sort_keys=True).encode() + content).hexdigest()[:16]


def judge(tree: Tree, mutant: dict) -> dict:
    path = tree.sources / mutant["file"]
    original = path.read_text(encoding="utf-8")
    count = original.count(mutant["find"])
    if count != 1:
        return {"outcome": "not applied", "by": f"its text occurs {count} times, wanted once"}
    begin = time.monotonic()
    try:
        path.write_text(original.replace(mutant["find"], mutant["replace"]), encoding="utf-8")
        compiled, output = tree.compile(list(mutant["tests"]))
        if not compiled:
            errors = [line for line in output.splitlines() if "error" in line]
            result = {"outcome": "not compiled", "by": (errors or [output[-200:]])[0][-200:]}
        else:
            by = tree.notices(mutant["tests"])
            result = {"outcome": "noticed" if by else "survived", "by": by}
    finally:
        path.write_text(original, encoding="utf-8")
    return result | {"seconds": round(time.monotonic() - begin, 1)}


def read_results() -> dict:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def run_all(wanted: list[dict], jobs: int) -> None:
    FOLDER.mkdir(exist_ok=True)
    results = read_results()
    waiting = [one for one in wanted if results.get(one["name"], {}).get("key") != key_of(one)]
    print(f"{len(wanted)} mutants, {len(wanted) - len(waiting)} of them done before", flush=True)
    if not waiting:
        return
    trees: queue.Queue[Tree] = queue.Queue()
    tests: dict[str, set[str]] = {}
    for mutant in waiting:
        for program, which in mutant["tests"].items():
            tests.setdefault(program, set()).add(which)
    for number in range(min(jobs, len(waiting))):
        tree = Tree(number)
        tree.copy()
        compiled, output = tree.compile(sorted(tests))
        if not compiled:
            raise Failure(f"without a mutant: {output[-2000:]}")
        trees.put(tree)
        print(f"tree {number}: compiled", flush=True)
    by = tree.notices({program: ":".join(sorted(which)) for program, which in tests.items()})
    if by:
        raise Failure(f"without a mutant: {by} fails")
    lock = threading.Lock()

    def one(mutant: dict) -> None:
        tree = trees.get()
        try:
            result = judge(tree, mutant)
        finally:
            trees.put(tree)
        with lock:
            results[mutant["name"]] = {"key": key_of(mutant)} | result
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            done = sum(results.get(other["name"], {}).get("key") == key_of(other)
                       for other in wanted)
            print(f"{done}/{len(wanted)} {mutant['name']}: {result['outcome']}"
                  f"{', ' + result['by'] if result['by'] else ''} ({result.get('seconds', 0)} s)",
                  flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(one, mutant) for mutant in waiting]:
            future.result()


def evidence() -> dict:
    results = read_results()
    rows = []
    for mutant in mutants():
        result = results.get(mutant["name"], {})
        if result.get("key") != key_of(mutant):
            result = {"outcome": "not run", "by": ""}
        rows.append({"name": mutant["name"], "file": mutant["file"], "find": mutant["find"],
                     "replace": mutant["replace"], "outcome": result["outcome"],
                     "by": result["by"], "why": mutant.get("why", "")})

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True,
                              check=False).stdout.strip()

    project = ROOT / "CMakeLists.txt"
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", project.read_text() if project.exists() else "")
    return {"schema": "flashcore-evidence", "version": 1, "kind": "mutants",
            "complete": all(row["outcome"] != "not run" for row in rows),
            "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "library": {"version": version[1] if version else "", "commit": git("rev-parse", "HEAD"),
                        "modified": bool(git("status", "--porcelain", "--untracked-files=no")),
                        "compiler": ""},
            "host": {"processor": platform.machine(), "threads": os.cpu_count() or 1},
            "mutants": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    try:
        if options.write:
            write(EVIDENCE, evidence())
            return 0
        wanted = [one for one in mutants() if options.only in one["name"] + " " + one["file"]]
        if not wanted:
            raise Failure(f"--only: is '{options.only}', wanted part of a mutant's name or file")
        run_all(wanted, options.jobs)
    except Failure as failure:
        print(f"mutants.py: {failure}", file=sys.stderr)
        return 2
    results = read_results()
    left = [one["name"] for one in wanted
            if results[one["name"]]["outcome"] != "noticed" and not one.get("why")]
    noticed = sum(results[one["name"]]["outcome"] == "noticed" for one in wanted)
    print(f"{noticed} of {len(wanted)} noticed; to explain or to test: {', '.join(left) or 'none'}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
