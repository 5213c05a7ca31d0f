#!/usr/bin/env python3
"""Digests the machine code of this build's device functions, and lists which of them each kernel
launches. Needs no GPU.

    machine_code.py --objects FILE --recorder PROGRAM --nvcc VERSION --json FILE --table FILE [--launches FILE]

reads the device programs of a build's objects (FILE names one per line) and asks the recorder
(tools/launches) which functions each recorded case of each kernel launches. The JSON file is for
tools/report.py: {"nvcc", "functions": {"sm_90": {name: digest}}, "cases": {"sm_90": {kernel:
[[name]]}}}. The table is for C++ (src/plan/fingerprints.cpp), so that a measurement can say what it
ran. --launches keeps the recorder's output for each launch, with its arguments, to compare two builds.

Names of functions, files and types, line tables and addresses are not part of a digest: code that is
moved, renamed or commented keeps its digest. Digests of different versions of nvcc cannot be compared.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from cubin import Cubin, Failure, Function, fail, programs_of

DIGITS = 16


def read_functions(objects: list[pathlib.Path]) -> dict[int, dict[str, Function]]:
    """Returns functions by target and mangled name."""
    found: dict[int, dict[str, Function]] = collections.defaultdict(dict)
    for path in objects:
        try:
            for target, program in programs_of(path.read_bytes()):
                for name, function in Cubin(program).functions().items():
                    if found[target].setdefault(name, function).digest != function.digest:
                        fail(f"has another kernel {name} for sm_{target} than an earlier object")
        except OSError as error:
            raise Failure(f"{path}: cannot be read: {error.strerror}") from error
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
    return dict(sorted(found.items()))


def record(recorder: pathlib.Path, functions: dict[int, dict[str, Function]]) -> str:
    sizes = {name: one.argument_bytes for by_name in functions.values() for name, one in by_name.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for name, bytes_of_each in sizes.items():
            file.write(" ".join([name, *map(str, bytes_of_each)]) + "\n")
        file.flush()
        done = subprocess.run([recorder, "--arguments", file.name], capture_output=True, text=True,
                              check=False)
    if done.returncode != 0:
        fail(f"{recorder}: failed: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def lines_of(recorded: str, kind: str) -> list[list[str]]:
    return [words[1:] for line in recorded.splitlines() if (words := line.split(" "))[0] == kind]


def cases(recorded: str, targets: list[str]) -> dict[str, dict[str, list[list[str]]]]:
    """Returns functions by target ("sm_90"), kernel and case; cases with equal launches count once."""
    found: dict[str, dict[str, set[tuple[str, ...]]]] = {target: {} for target in targets}
    for target, kernel, *names in lines_of(recorded, "case"):
        if target in found:
            found[target].setdefault(kernel, set()).add(tuple(names))
    return {target: {kernel: sorted(map(list, sets)) for kernel, sets in sorted(kernels.items())}
            for target, kernels in found.items()}


def table(nvcc: str, functions: dict[str, dict[str, str]]) -> str:
    return "".join(f'{{"{name}", {target.removeprefix("sm_")}, "nvcc {nvcc}", "{digest}"}},\n'
                   for target, by_name in functions.items() for name, digest in by_name.items())


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
    parser.add_argument("--launches", type=pathlib.Path)
    options = parser.parse_args()
    try:
        names = options.objects.read_text(encoding="utf-8").splitlines()
        compiled = read_functions([pathlib.Path(name) for name in names if name.endswith(".cu.o")])
        recorded = record(options.recorder, compiled)
    except (OSError, Failure) as failure:
        print(f"machine_code: {failure}", file=sys.stderr)
        return 1
    functions = {f"sm_{target}": {name: one.digest[:DIGITS] for name, one in sorted(by_name.items())}
                 for target, by_name in compiled.items()}
    write(options.json, json.dumps({"nvcc": options.nvcc, "functions": functions,
                                    "cases": cases(recorded, list(functions))}, indent=1) + "\n")
    write(options.table, table(options.nvcc, functions))
    if options.launches:
        write(options.launches, "".join(" ".join(words) + "\n" for words in lines_of(recorded, "launch")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
