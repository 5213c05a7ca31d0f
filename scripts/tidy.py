#!/usr/bin/env python3
"""clang-tidy over the C and C++ files of a build that are not tests, on all cores.

Most of its time goes into headers: parsing them, and matching every check against all that they
declare. So files with the same flags are checked in groups, as one translation unit with the text of
each file, one after the other, and with the folders of headers of them all. Files that do not go together (two unnamed namespaces with one name,
or a macro) are in different groups; a group that does not compile is checked file by file.

The analyzer stops exploring a function after MOST_NODES states, not after 225,000.

A file that passed before is not checked again, here or in another checkout: what passed is remembered
in the user's cache folder, by a hash of all files of ours that it includes, the command without the
checkout's own path, and .clang-tidy.

The library comes first. After FLASHCORE_TIDY_SECONDS (default 900) no further group is begun, and
the files that were left out are counted.

usage: tidy.py [--changed] BUILD_DIRECTORY CLANG_TIDY    --changed: only files that a change reaches
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHES = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PASSED = CACHES / "flashcore" / "tidy"


INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


@functools.cache
def digest_of(path):
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def includes_of(path, folders):
    """Our files that a file of ours includes by name."""
    found = []
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        found += [one.resolve() for one in (folder / name for folder in (path.parent, *folders)) if one.is_file()][:1]
    return found


def made_of(entry):
    """Our files that a file is compiled from, itself among them."""
    folders = tuple(pathlib.Path(entry["directory"], word[2:]) for word in shlex.split(entry["command"])
                    if word.startswith("-I"))
    found, waiting = set(), [pathlib.Path(entry["file"])]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += includes_of(path, folders)
    return found


def key_of(entry, settings):
    """A hash of all that the verdict on a file depends on."""
    parts = sorted(digest_of(path) for path in made_of(entry))
    command = entry["command"].replace(str(ROOT), ".").encode()
    return hashlib.sha256(b"\0".join([*parts, command, settings])).hexdigest()


def changed_files():
    """What differs from FLASHCORE_TIDY_BASE, from where this branch left origin/main, or from 20 commits ago; None
    for everything, where git does not know."""
    def git(*words):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    base = os.environ.get("FLASHCORE_TIDY_BASE", "") or git("merge-base", "origin/main", "HEAD")
    if not base or base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "HEAD~20")
    if not base:
        return None
    return {(ROOT / name).resolve() for name in git("diff", "--name-only", base).splitlines()}


ORDER = ["src", "cli", "bench", "evolve"]
# Their text is the same as in the files for AVX2 and AMX, which are checked.
SAME_TEXT = ("_sse4.cpp", "_avx3.cpp", "_avx3_bf16.cpp")
LARGEST_GROUP = 8
MOST_NODES = 50_000
ARGUMENTS = ["--quiet", "--warnings-as-errors=*", "--extra-arg=-Wno-unknown-warning-option",
             *(f"--extra-arg={word}" for word in
               ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={MOST_NODES}"))]
# Between two files of a group: readability-duplicate-include begins again after a macro.
BETWEEN = "#define FLASHCORE_NEXT_FILE\n#undef FLASHCORE_NEXT_FILE\n"
BEGIN, END = "namespace {", "}  // namespace"
DECLARED = (re.compile(r"\b(?:struct|class|enum|using|namespace|concept)\s+(\w+)"),
            re.compile(r"^using (?:\w+::)+(\w+);"),
            re.compile(r"^[\w:<>,&*\s\[\]\".]*?\b(\w+)(?:\(|\s*=|\s*\{|\[|;)"))


def names_in(text):
    """What a file declares at the left margin in its unnamed namespace, and outside of it."""
    own, shared = set(), set()
    names = shared
    for line in text.splitlines():
        if line == BEGIN:
            names = own
        elif line == END:
            names = shared
        elif line and (line[0].isalpha() or line[0] in "_["):
            for pattern in DECLARED:
                names.update(pattern.findall(line))
    return own, shared


def flags_of(entry):
    """What of a compile command a verdict depends on: (language and definitions, folders of headers)."""
    words = shlex.split(entry["command"])
    meaning, folders = [], []
    for word, following in zip(words, [*words[1:], ""]):
        if word.startswith(("-D", "-std=")):
            meaning.append(word)
        elif word.startswith("-I"):
            folders.append((word,))
        elif word == "-isystem":
            folders.append((word, following))
    return tuple(meaning), tuple(folders)


def common_flags(entries):
    """The flags of each file; files whose folders another's include have that one's."""
    flags = {entry["file"]: flags_of(entry) for entry in entries}
    known = sorted(set(flags.values()), key=lambda one: -len(one[1]))

    def widest(meaning, folders):
        folders = next(more for same, more in known
                       if same == meaning and set(folders) <= set(more))
        return (*meaning, *(word for folder in folders for word in folder))

    return {file: widest(*one) for file, one in flags.items()}


class Group:
    """Files that are checked together, with the same flags."""

    def __init__(self, flags):
        self.flags, self.entries, self.own, self.shared = flags, [], set(), set()
        self.is_open = True

    def takes(self, flags, own, shared, has_macros):
        return (self.is_open and not has_macros and flags == self.flags
                and len(self.entries) < LARGEST_GROUP
                and not own & (self.own | self.shared) and not shared & self.own)

    def add(self, entry, own, shared, has_macros):
        self.entries.append(entry)
        self.own |= own
        self.shared |= shared
        self.is_open = not has_macros


def groups_of(entries):
    """In the order of the first file of each; the smallest that fits takes the next file."""
    groups, flags_by_file = [], common_flags(entries)
    for entry in entries:
        path = pathlib.Path(entry["file"])
        text = path.read_text(encoding="utf-8")
        flags = flags_by_file[entry["file"]]
        # An include without a folder is found next to the file, and C is no C++.
        alone = (path.suffix == ".c" or re.search(r"^ *# *(?:define|undef)\b", text, re.MULTILINE)
                 or any((path.parent / name).exists() for name in
                        re.findall(r'^#include "([^/"]+)"', text, re.MULTILINE)))
        facts = (*names_in(text), bool(alone))
        fitting = [group for group in groups if group.takes(flags, *facts)]
        if not fitting:
            fitting = [Group(flags)]
            groups += fitting
        min(fitting, key=lambda group: len(group.entries)).add(entry, *facts)
    return groups


class Tidy:
    def __init__(self, build, program, deadline):
        self.build, self.program, self.deadline = build, program, deadline

    def run(self, *arguments):
        return subprocess.run([self.program, *ARGUMENTS, f"--config-file={ROOT / '.clang-tidy'}",
                               *arguments], capture_output=True, text=True, check=False,
                              cwd=self.build)

    def one(self, entry):
        result = self.run("-p", ".", entry["file"])
        return "" if result.returncode == 0 else result.stdout or result.stderr

    def together(self, group):
        """What clang-tidy says of the group, or None when it does not compile."""
        text, places = "", []
        for entry in group.entries:
            text += BETWEEN
            places.append((text.count("\n"), entry["file"]))
            text += pathlib.Path(entry["file"]).read_text(encoding="utf-8").rstrip("\n") + "\n"
        first = pathlib.Path(group.entries[0]["file"])
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = self.build / "tidy" / f"{first.stem}-{digest}.cpp"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        result = self.run(str(path), "--", *group.flags)
        path.unlink()
        said = result.stdout or result.stderr
        if result.returncode != 0 and "[clang-diagnostic-error" in said:
            return None

        def place(found):
            line = int(found[1])
            before, file = next((one for one in reversed(places) if one[0] < line), places[0])
            return f"{file}:{line - before}:"

        return "" if result.returncode == 0 else re.sub(f"{re.escape(str(path))}:(\\d+):", place, said)

    def check(self, group):
        """(the files that passed, what clang-tidy said of the others), or None: not begun."""
        if time.monotonic() > self.deadline:
            return None
        said = self.together(group) if len(group.entries) > 1 else None
        if said is None:
            said_of = {entry["file"]: self.one(entry) for entry in group.entries}
            return ([entry for entry in group.entries if not said_of[entry["file"]]],
                    "".join(said_of.values()))
        # Where a group has a finding, none of its files has passed.
        return ([] if said else group.entries), said


def wanted_entries(build):
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        # nvcc's files are not for clang-tidy; each other file once, with its first command.
        checked = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ORDER
        if path.suffix in (".c", ".cpp") and checked and not path.name.endswith(SAME_TEXT):
            entries.setdefault(path, entry)
    return sorted(entries.values(), key=lambda entry: (
        ORDER.index(pathlib.Path(entry["file"]).relative_to(ROOT).parts[0]), entry["file"]))


def main():
    words = sys.argv[1:]
    only_changed = words[:1] == ["--changed"]
    build, program = pathlib.Path(words[only_changed]).resolve(), words[only_changed + 1]
    PASSED.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout
    settings = (ROOT / ".clang-tidy").read_bytes() + version + " ".join(ARGUMENTS).encode()
    wanted = wanted_entries(build)
    changed = changed_files() if only_changed else None
    if changed is not None:
        wanted = [entry for entry in wanted if made_of(entry) & changed]
    keys = {entry["file"]: key_of(entry, settings) for entry in wanted}
    pending = [entry for entry in wanted if not (PASSED / keys[entry["file"]]).exists()]
    groups = groups_of(pending)
    seconds = float(os.environ.get("FLASHCORE_TIDY_SECONDS", "900"))
    tidy = Tidy(build, program, time.monotonic() + seconds)
    failures = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(tidy.check, group): group for group in groups}
        for job in concurrent.futures.as_completed(jobs):
            verdict, group = job.result(), jobs[job]
            if verdict is None:
                left_out += len(group.entries)
                continue
            passed, said = verdict
            failures += len(group.entries) - len(passed)
            if said:
                print(said.replace(f"{ROOT}/", ""), flush=True)
            for entry in passed:
                (PASSED / keys[entry["file"]]).touch()
    print(f"clang-tidy: {len(wanted)} files, of which {len(pending)} are new, in {len(groups)} groups; "
          f"{failures} not passed, {left_out} left out for lack of time")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
