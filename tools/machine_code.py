#!/usr/bin/env python3
"""What of a CUDA kernel reaches a GPU, as a hash: its instructions and its launches. Needs no GPU.

    machine_code.py --objects FILE --recorder PROGRAM --nvcc VERSION --json FILE --table FILE

reads the device programs of a build's objects (FILE names one per line), lets the recorder
(tools/launches) say which functions each kernel of the library launches, how and with what, and
writes a hash for each kernel and GPU family: as JSON for tools/report.py, and as rows of a C++
table for the library, so that a measurement says what it measured.

Names of functions, files and types, line tables and addresses are no part of it: code that is
moved, renamed or commented keeps its hash. A hash of one nvcc says nothing about that of another.
"""
import argparse
import bisect
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from cubin import Cubin, Failure, Function, fail, programs_of

DIGITS = 16


def read_functions(objects: list[pathlib.Path]) -> dict[str, dict[int, Function]]:
    """By mangled name and target."""
    found: dict[str, dict[int, Function]] = collections.defaultdict(dict)
    for path in objects:
        try:
            programs = programs_of(path.read_bytes())
            for target, program in programs:
                for name, function in Cubin(program).functions().items():
                    if found[name].setdefault(target, function).digest != function.digest:
                        fail(f"has another kernel {name} for sm_{target} than an earlier object")
        except OSError as error:
            raise Failure(f"{path}: cannot be read: {error.strerror}") from error
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
    return dict(found)


def image_for(function: dict[int, Function], capability: int) -> Function | None:
    """What a GPU runs: of its own generation the newest that it knows."""
    targets = sorted(one for one in function if one // 10 == capability // 10)
    place = bisect.bisect_right(targets, capability)
    return function[targets[place - 1]] if place else None


def record(recorder: pathlib.Path, functions: dict[str, dict[int, Function]]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for name, by_target in functions.items():
            sizes = next(iter(by_target.values())).argument_bytes
            file.write(" ".join([name, *map(str, sizes)]) + "\n")
        file.flush()
        done = subprocess.run([recorder, "--arguments", file.name], capture_output=True, text=True,
                              check=False)
    if done.returncode != 0:
        fail(f"{recorder}: failed: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def hashes(functions: dict[str, dict[int, Function]], recorded: str) -> dict[str, dict[str, str]]:
    """By kernel of the library and family ("sm_90"); none where this build has no code for it.

    Lines are sorted by what they hold: the order in which kernels, cases or files come is no matter.
    """
    lines: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    cases: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    without_code = set()
    for line in recorded.splitlines():
        words = line.split(" ")
        if words[0] == "budget":
            continue
        is_launch = words[0] == "launch"
        family, kernel = words[1:3] if is_launch else words[:2]
        function = words[4]
        image = image_for(functions.get(function, {}), int(family.removeprefix("sm_")))
        if image is None:
            without_code.add((kernel, family))
        elif is_launch:
            cases[kernel, family, words[3]].append(" ".join([image.digest, *words[5:]]))
        else:
            lines[kernel, family].add(image.digest)
    for (kernel, family, _), launches in cases.items():
        lines[kernel, family].add("\n".join(launches))
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for (kernel, family), content in sorted(lines.items()):
        if (kernel, family) not in without_code:
            digest = hashlib.sha256("\n\n".join(sorted(content)).encode())
            found[kernel][family] = digest.hexdigest()[:DIGITS]
    return dict(found)


def table(nvcc: str, kernels: dict[str, dict[str, str]]) -> str:
    return "".join(f'{{"{kernel}", {family.removeprefix("sm_")}, "nvcc {nvcc} {family} {digest}"}},\n'
                   for kernel, families in kernels.items() for family, digest in families.items())


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=pathlib.Path, required=True)
    parser.add_argument("--recorder", type=pathlib.Path, required=True)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--table", type=pathlib.Path, required=True)
    options = parser.parse_args()
    try:
        names = options.objects.read_text(encoding="utf-8").splitlines()
        functions = read_functions([pathlib.Path(name) for name in names if name.endswith(".cu.o")])
        kernels = hashes(functions, record(options.recorder, functions))
    except (OSError, Failure) as failure:
        print(f"machine_code: {failure}", file=sys.stderr)
        return 1
    write(options.json, json.dumps({"nvcc": options.nvcc, "kernels": kernels}, indent=1) + "\n")
    write(options.table, table(options.nvcc, kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
