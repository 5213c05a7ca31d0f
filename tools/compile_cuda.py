#!/usr/bin/env python3
"""Runs a CUDA compilation, keeps ptxas's report next to the object, and fails on certain messages.

    compile_cuda.py [--lenient] OBJECT.ptxas.txt -- nvcc ... -o OBJECT ...

Spills and the warnings of ptxas_report.ALARMS fail the compilation, with the kernel's name; the
object is removed, so that the next build tries again. With --lenient they are only shown.
"""
import pathlib
import subprocess
import sys

import ptxas_report


def complaints(report: str) -> list[str]:
    found = [f"{kernel.name} for {kernel.target}: {kernel.spill_stores} bytes of spill stores and "
             f"{kernel.spill_loads} of spill loads, wanted none"
             for kernel in ptxas_report.parse(report) if kernel.spills]
    return found + [f"ptxas dropped a fast path: {line}" for line in ptxas_report.alarms(report)]


def main(arguments: list[str]) -> int:
    lenient = arguments[:1] == ["--lenient"]
    if lenient:
        arguments = arguments[1:]
    if len(arguments) < 3 or arguments[1] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    report_path, command = pathlib.Path(arguments[0]), arguments[2:]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    quiet = ("ptxas info", "    ")  # the report itself; everything else is for people
    for line in done.stdout.splitlines():
        if done.returncode != 0 or not line.startswith(quiet):
            print(line, file=sys.stderr)
    if done.returncode != 0:
        return done.returncode
    if not any(argument.endswith(".cu") for argument in command):
        return 0
    report_path.write_text(done.stdout, encoding="utf-8")
    found = complaints(done.stdout)
    for line in found:
        print(f"{'warning' if lenient else 'error'}: {line}", file=sys.stderr)
    if found and not lenient:
        pathlib.Path(command[command.index("-o") + 1]).unlink(missing_ok=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
