#!/usr/bin/env python3
"""Checks every kernel's budget of registers, spills, stack and shared memory, every family's of device
code, and that evidence can identify each kernel. Needs no GPU.

    check_resources.py BUILD              prints the tables, then what is over its budget
    check_resources.py BUILD --quiet      prints only the latter

Registers, spills, stack and static shared memory come from the ptxas reports that the build keeps
next to the objects in its cuda_objects.txt; dynamic shared memory from BUILD/bin/record_launches,
which runs the launch code of every kernel against a runtime that only records launches. Budgets are
data: kernel.json in each kernel's folder (kernel_folders.py). Every kernel must have a digest in
BUILD/machine_code.json: otherwise a row of evidence that ran it could never become stale. Device code is
counted as the library has it: the ELF images in the objects, symbols included.
"""
import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

import cubin
import kernel_folders
import ptxas_report
from reporting.evidence import read_machine_code

SUFFIX = ".cu.o"
OBJECTS = "cuda_objects.txt"  # written when the build is configured
KB = 1024


@dataclasses.dataclass
class Row:
    file: str  # below src/cuda, without .cu
    kernel: ptxas_report.Kernel
    dynamic_shared: int | None  # None: not launched by the recorder

    @property
    def shared(self) -> int:
        return self.kernel.static_shared + (self.dynamic_shared or 0)


def objects_of(build: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the build's objects by kernel file; a reused folder contains others, too."""
    base = (build / "src/cuda/CMakeFiles/flashcore_cuda.dir").resolve()
    listed = [pathlib.Path(line).resolve() for line in (build / OBJECTS).read_text(encoding="utf-8").splitlines()
              if line.endswith(SUFFIX)]
    return dict(sorted((path.relative_to(base).as_posix().removesuffix(SUFFIX), path) for path in listed))


def read_reports(objects: dict[str, pathlib.Path]) -> dict[str, str]:
    reports = {}
    for name, path in objects.items():
        report = path.with_name(path.name + ".ptxas.txt")
        if not path.exists() or not report.exists():
            raise SystemExit(f"{path}: is of this build but was not built, or has no report beside "
                             "it: build the CUDA kernels first")
        reports[name] = report.read_text(encoding="utf-8")
    return reports


def code_sizes(objects: dict[str, pathlib.Path], folders: list[kernel_folders.Folder]) -> dict[tuple[str, str], int]:
    """Returns bytes by family and target."""
    total: dict[tuple[str, str], int] = collections.defaultdict(int)
    for name, path in objects.items():
        for folder in (one for one in folders if one.object_name(name) is not None):
            for target, program in cubin.programs_of(path.read_bytes()):
                total[folder.name, f"sm_{target}"] += len(program)
    return total


def too_much_code(found: dict[tuple[str, str], int], folders: list[kernel_folders.Folder]) -> list[str]:
    most = {folder.name: folder.code_kb * KB for folder in folders}
    over = [f"over budget: {name} has {size} bytes of code for {target}, at most {most[name]}"
            for (name, target), size in sorted(found.items()) if size > most[name]]
    return over + [f"{name}: no device code was found: build the CUDA kernels first"
                   for name in most if not any(name == built for built, _ in found)]


def record_launches(build: pathlib.Path) -> dict[tuple[str, str], int]:
    """Returns the maximum of dynamic shared bytes by (target digits, kernel)."""
    done = subprocess.run([build / "bin/record_launches"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"record_launches failed:\n{done.stderr}")
    launches: dict[tuple[str, str], int] = {}
    for line in done.stdout.splitlines():
        if line.startswith("case "):
            continue
        target, _variant, _threads, shared, kernel = line.split()
        key = (target, kernel)
        launches[key] = max(launches.get(key, 0), int(shared))
    return launches


def rows_of(reports: dict[str, str], launches: dict[tuple[str, str], int]) -> list[Row]:
    return [Row(file, kernel, launches.get((kernel.target.rstrip("af"), kernel.name)))
            for file, report in reports.items() for kernel in ptxas_report.parse(report)]


def budget_of(folders: list[kernel_folders.Folder], row: Row) -> dict | None:
    found = [one.budget(row.file, row.kernel.name, row.kernel.target) for one in folders]
    return next((budget for budget in found if budget is not None), None)


def complaints(row: Row, budget: dict | None) -> list[str]:
    """Returns the violations as sentences that name the kernel."""
    who = f"{row.file}: {short_name(row.kernel.name)} for {row.kernel.target}"
    if not row.kernel.complete:
        return [f"{who}: ptxas's report of it is not complete"]
    if budget is None:
        return [f"{who}: has no budget in the kernel.json of its folder"]
    found = []
    for what, value, most in (("registers", row.kernel.registers, budget["registers"]),
                              ("bytes of spills", row.kernel.spills, budget["spills"]),
                              ("bytes of stack", row.kernel.stack, budget["stack"]),
                              ("bytes of shared memory", row.shared, budget["shared"])):
        if value > most:
            found.append(f"{who}: {value} {what}, at most {most}")
    if row.dynamic_shared is None and not budget.get("static_only", False):
        found.append(f"{who}: no recorded launch, so its shared memory is not known")
    return found


def without_digest(rows: list[Row], code: dict) -> list[str]:
    """Returns kernels without a digest as sentences; `code`: the output of tools/machine_code.py."""
    return [f"{row.file}: {short_name(row.kernel.name)} for {row.kernel.target}: has no digest in machine_code.json"
            for row in rows
            if row.kernel.name not in code["functions"].get(row.kernel.target.rstrip("af"), {})]


def check(reports: dict[str, str], launches: dict[tuple[str, str], int],
          folders: list[kernel_folders.Folder], code: dict) -> tuple[list[Row], list[str]]:
    rows = rows_of(reports, launches)
    problems = [line for row in rows for line in complaints(row, budget_of(folders, row))]
    problems += without_digest(rows, code)
    for file, report in reports.items():
        problems += [f"{file}: ptxas dropped a fast path: {line}"
                     for line in ptxas_report.alarms(report)]
        if not ptxas_report.parse(report):
            problems.append(f"{file}: its ptxas report names no kernel")
    if not reports:
        problems.append("no ptxas reports were found: build the CUDA kernels first")
    return rows, problems


def short_name(mangled: str) -> str:
    """Returns the kernel's own name and its template's numbers, enough to find it."""
    name = mangled
    for match in re.finditer(r"\d+", mangled):
        # A length and that many characters; digits before the length may belong to a hash.
        for begin in range(match.start(), match.end()):
            length = int(mangled[begin:match.end()])
            candidate = mangled[match.end():match.end() + length]
            if len(candidate) == length and re.fullmatch(r"[a-z]\w*_kernel", candidate):
                name = candidate
    numbers = re.findall(r"L[ij](\d+)E", mangled)
    return f"{name}<{', '.join(numbers)}>" if numbers else name


def print_table(rows: list[Row]) -> None:
    print(f"{'kernel':<52} {'target':<7} {'regs':>5} {'spill':>6} {'stack':>6} {'shared KB':>10}")
    for row in rows:
        shared = "?" if row.dynamic_shared is None else f"{row.shared / KB:.1f}"
        name = f"{row.file} {short_name(row.kernel.name)}"
        print(f"{name:<52} {row.kernel.target:<7} {row.kernel.registers:>5} "
              f"{row.kernel.spills:>6} {row.kernel.stack:>6} {shared:>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    objects, folders = objects_of(options.build), kernel_folders.folders()
    rows, problems = check(read_reports(objects), record_launches(options.build), folders,
                           read_machine_code(options.build))
    sizes = code_sizes(objects, folders)
    problems += too_much_code(sizes, folders)
    if not options.quiet:
        print_table(rows)
        most = {folder.name: folder.code_kb for folder in folders}
        for (name, target), size in sorted(sizes.items()):
            print(f"{name:<26} {target:<7} {size / KB:8.0f} KB of {most[name]} KB")
    for line in problems:
        print(f"check_resources: {line}", file=sys.stderr)
    print(f"{len(rows)} kernels checked, {len(problems)} complaints")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
