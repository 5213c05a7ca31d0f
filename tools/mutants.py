#!/usr/bin/env python3
"""Injects small faults into the host code, one at a time, and checks whether the tests detect them.

    mutants.py                      all of tools/mutants.json; finished mutants are kept, so that a run can
                                    be stopped and resumed
    mutants.py --only forward       those with this text in their name or file
    mutants.py --jobs 2             number of parallel compilers and test programs; default: all cores
    mutants.py --write              writes docs/evidence/mutants.json from the finished ones

A mutant is a text that occurs once in a file, its replacement, and the tests that should detect it:
programs with a GoogleTest filter. It is detected if a program fails or takes too long. A mutant
that does not compile says nothing about the tests, and does not count. docs.report and other tests
of sources are not used: they fail with any change.

The tests are built once, without a fault (-O1, no CUDA). For a mutant, the changed file is put into
a folder that the compiler searches first; the objects that ninja builds from that file are compiled
into the folder, and the test programs are linked with them before the libraries. The sources
themselves are never changed. Everything is in build-mutants.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

TOOLS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "python/tests")]
from evidence import common  # noqa: E402
from reporting.evidence import Failure, check, write  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tools/mutants.json"
FOLDER = ROOT / "build-mutants"
RESULTS = FOLDER / "results.json"
EVIDENCE = ROOT / "docs/evidence/mutants.json"
BUILD_SECONDS, TEST_SECONDS = 1800, 300
SCHEMA = {"type": "array", "items": {
    "type": "object", "required": ["name"],
    "properties": dict.fromkeys(("name", "file", "find", "replace", "why"), {"type": "string"}) | {
        "tests": {"type": "object", "additionalProperties": {"type": "string"}}}}}


def run(command: list[str], folder: pathlib.Path, seconds: float) -> tuple[bool, str]:
    """Returns whether it succeeded in time, and its output."""
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
        return done.returncode == 0, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return False, f"took more than {seconds} s"


def option_value(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


class Build:
    """The tests without a fault, and how to link them with one changed file."""

    def __init__(self, slots: threading.BoundedSemaphore):
        self.folder = FOLDER / "build"
        self.slots = slots
        self.compilations: dict[str, list[str]] = {}  # object to command
        self.made_of: dict[str, set[pathlib.Path]] = {}  # object to source files

    def make(self, programs: list[str]) -> None:
        if not (self.folder / "build.ninja").exists():
            self._run(["cmake", "-S", str(ROOT), "-B", str(self.folder), "-G", "Ninja",
                       "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -w",
                       "-DFLASHCORE_TESTS=ON", "-DFLASHCORE_CUDA=OFF",
                       "-DFLASHCORE_UNITY=OFF"], "cmake")
        self._run(["ninja", "-C", str(self.folder), *programs], "without a mutant")
        commands = json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8"))
        for entry in commands:
            words = shlex.split(entry["command"])
            self.compilations[option_value(words, "-o")] = words
        made_of: set[pathlib.Path] = set()
        for line in self._ninja("deps").splitlines():
            if line.startswith(" "):
                made_of.add((self.folder / line.strip()).resolve())
            elif line:
                made_of = self.made_of.setdefault(line.split(": #deps")[0], set())

    def _run(self, command: list[str], what: str) -> None:
        succeeded, output = run(command, FOLDER, BUILD_SECONDS)
        if not succeeded:
            raise Failure(f"{what}: {output[-2000:]}")

    def _ninja(self, *words: str) -> str:
        return subprocess.run(["ninja", "-C", str(self.folder), "-t", *words], check=True,
                              capture_output=True, text=True).stdout

    def path(self, program: str) -> str:
        """Returns a program's path in the build folder."""
        found = [path for path in self.folder.rglob(program) if path.is_file()]
        if len(found) != 1:
            raise Failure(f"{program}: there are {len(found)} such programs, wanted one")
        return str(found[0].relative_to(self.folder))

    def _last_command(self, target: str) -> list[str]:
        """Returns the command that links a program or a library from its objects."""
        last = self._ninja("commands", target).splitlines()[-1]
        steps = [step.strip() for step in last.split("&&")]  # ": && c++ ... && tests are listed"
        return shlex.split(next(step for step in steps if ".o " in step))

    def objects_of(self, program: str) -> list[str]:
        """Returns the objects of a program, and of our libraries in it."""
        link = self._last_command(self.path(program))
        found = [word for word in link if word.endswith(".o")]
        for library in dict.fromkeys(word for word in link if word.endswith(".a")):
            if not pathlib.Path(library).is_absolute():
                found += [word for word in self._last_command(library) if word.endswith(".o")]
        return found

    def _compile(self, name: str, file: str, folder: pathlib.Path) -> str:
        """Compiles one object with the changed file; returns the errors."""
        words = list(self.compilations[name])
        output = folder / "objects" / name
        output.parent.mkdir(parents=True, exist_ok=True)
        words[words.index("-o") + 1] = str(output)
        original = str(ROOT / file)
        words = [str(folder / file) if word == original else word for word in words]
        words[1:1] = [f"-I{folder / part}" for part in ("include", "src", ".")]
        notes = output.with_suffix(".d")
        with self.slots:
            succeeded, text = run([*words, "-MD", "-MF", str(notes)], self.folder, BUILD_SECONDS)
        if not succeeded:
            return text
        if str(folder) not in notes.read_text(encoding="utf-8").replace(str(output), ""):
            raise Failure(f"{name}: was compiled without the changed {file}")
        return ""

    def link(self, program: str, file: str, folder: pathlib.Path) -> str:
        """Links a program in the folder, with the changed file; returns the errors."""
        changed = [name for name in self.objects_of(program)
                   if (ROOT / file).resolve() in self.made_of.get(name, ())]
        if not changed:
            raise Failure(f"{program}: nothing in it is made of {file}")
        missing = [name for name in changed if not (folder / "objects" / name).exists()]
        with concurrent.futures.ThreadPoolExecutor(max(len(missing), 1)) as pool:
            errors = list(pool.map(lambda name: self._compile(name, file, folder), missing))
        if any(errors):
            return next(filter(None, errors))
        words = self._last_command(self.path(program))
        words[words.index("-o") + 1] = str(folder / program)
        words = [str(folder / "objects" / word) if word in changed else word for word in words]
        libraries = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words[libraries:libraries] = [str(folder / "objects" / name) for name in changed
                                      if str(folder / "objects" / name) not in words]
        with self.slots:
            succeeded, text = run(words, self.folder, BUILD_SECONDS)
        return "" if succeeded else text

    def notices(self, program: pathlib.Path, which: str) -> str:
        """Returns the first failure of a test program."""
        with self.slots:
            succeeded, output = run([str(program), f"--gtest_filter={which}", "--gtest_brief=1",
                                     "--gtest_fail_fast"], self.folder, TEST_SECONDS)
        if succeeded:
            return ""
        failed = [line.split("]")[1].split("(")[0].strip() for line in output.splitlines()
                  if line.startswith("[  FAILED  ]")]
        return f"{program.name}: {failed[0] if failed else 'did not end well'}"


def mutants() -> list[dict]:
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    check(listed, SCHEMA, LIST.name)
    names = [one["name"] for one in listed]
    for name in names:
        if names.count(name) > 1:
            raise Failure(f"{LIST.name}: '{name}' is there twice")
    return listed


def key_of(mutant: dict) -> str:
    """A key of the mutant and its file; a new test does not make it run again."""
    content = (ROOT / mutant["file"]).read_bytes()
    return hashlib.sha256(json.dumps(mutant, sort_keys=True).encode() + content).hexdigest()[:16]


def judge(build: Build, mutant: dict) -> dict:
    original = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    count = original.count(mutant["find"])
    if count != 1:
        return {"outcome": "not applied", "by": f"its text occurs {count} times, wanted once"}
    begin = time.monotonic()
    folder = FOLDER / "mutants" / key_of(mutant)
    changed = folder / mutant["file"]
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(original.replace(mutant["find"], mutant["replace"]), encoding="utf-8")
    result = {"outcome": "survived", "by": ""}
    try:
        for program, which in mutant["tests"].items():
            errors = build.link(program, mutant["file"], folder)
            if errors:
                lines = [line for line in errors.splitlines() if "error" in line]
                result = {"outcome": "not compiled", "by": (lines or [errors[-200:]])[0][-200:]}
                break
            by = build.notices(folder / program, which)
            if by:
                result = {"outcome": "noticed", "by": by}
                break
    finally:
        shutil.rmtree(folder)
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
    # Headers first: they recompile many objects, which is best not left for the end.
    waiting.sort(key=lambda mutant: mutant["file"].endswith(".cpp"))
    build = Build(threading.BoundedSemaphore(jobs))
    tests = {test for mutant in waiting for test in mutant["tests"].items()}
    begin = time.monotonic()
    build.make(sorted({program for program, _ in tests}))
    print(f"compiled without a mutant ({time.monotonic() - begin:.0f} s)", flush=True)
    for program, which in sorted(tests):
        by = build.notices(build.folder / build.path(program), which)
        if by:
            raise Failure(f"without a mutant: {by} fails")
    lock = threading.Lock()

    def one(mutant: dict) -> None:
        result = judge(build, mutant)
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

    project = ROOT / "CMakeLists.txt"
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", project.read_text() if project.exists() else "")
    return common("mutants", all(row["outcome"] != "not run" for row in rows),
                  {"version": version[1] if version else "", "compiler": ""},
                  {"processor": platform.machine(), "threads": os.cpu_count() or 1}) | {"mutants": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
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
