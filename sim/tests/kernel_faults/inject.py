#!/usr/bin/env python3
"""Injects a fault into a copy of a kernel, runs it on the simulator, and checks what that reports.

usage: inject.py --build DIRECTORY [--launcher PROGRAM] [--keep] [--jobs N] [NAME... | --all]
       inject.py --names

A fault (faults.py) changes files below src/. The changed files go to an overlay folder that is
searched before src/, the one translation unit that the fault needs is compiled as the build
compiles it, and its object is linked in front of the library, so that the library's own is not
taken. The unchanged command must pass with the same arguments: what a fault shows is its own.
"""
import argparse
import concurrent.futures
import pathlib
import re
import resource
import shlex
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "sim/tests"))

from device_units import Build, BuildError, run  # noqa: E402
from faults import FAULTS  # noqa: E402

SECONDS = 120  # a run that takes longer has hung, which the simulator should have said


def overlay(fault, folder):
    """The changed files below `folder`, by the name that includes give them."""
    changed = {}
    for file, old, new in fault.edits:
        text = changed.get(file) or (ROOT / "src" / file).read_text()
        if text.count(old) != 1:
            raise BuildError(f"{file} has this text {text.count(old)} times, wanted once:\n{old}")
        changed[file] = text.replace(old, new)
    for file, text in changed.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return changed


def make(fault, build, folder):
    """The flashcore command with the fault."""
    changed = overlay(fault, folder / "overlay")
    source, words = build.unit(fault.unit)
    if source.is_relative_to(ROOT / "src") and str(source.relative_to(ROOT / "src")) in changed:
        words[words.index(str(source))] = str(folder / "overlay" / source.relative_to(ROOT / "src"))
    words.insert(1, f"-I{folder / 'overlay'}")
    build.compile(words, folder / "unit.o")
    build.link([folder / "unit.o"], folder / "flashcore")
    return folder / "flashcore"


def attempt(fault, build, keep):
    """What is wrong with the test of this fault, or nothing; and what the simulator said."""
    folder = build.folder / "sim/tests/kernel_faults" / fault.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        status, text = run([build.command, *fault.arguments], SECONDS)
        if status != 0:
            raise BuildError(f"the unchanged kernel fails, with exit code {status}:\n{text[:3000]}")
        status, text = run([make(fault, build, folder), *fault.arguments], SECONDS)
        if fault.reported is None and not fault.why:
            wrong = "not said why it is not reported"
        elif fault.reported is None:
            wrong = "" if status == 0 else "it is reported now: say so in faults.py"
        elif status == 0:
            wrong = "not reported"
        else:
            wrong = "" if fault.reported in text else f'"{fault.reported}" is not reported'
        return wrong, text
    except BuildError as error:
        return str(error), ""
    finally:
        if not keep:
            shutil.rmtree(folder)


def shown(text):
    """The first findings, or how the result was wrong."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\btimes\)|FAILED", line)]
    return (lines or text.strip().splitlines() or ["passed"])[:3]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, help="a build folder with the simulator")
    parser.add_argument("--launcher", default="", help="runs the compiler, such as ccache")
    parser.add_argument("--keep", action="store_true", help="leave what was made")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--names", action="store_true", help="list those that CTest tries")
    parser.add_argument("--all", action="store_true", help="try every fault")
    parser.add_argument("faults", nargs="*", metavar="NAME")
    return parser.parse_args()


def main():
    options = parse()
    by_name = {fault.name: fault for fault in FAULTS}
    if len(by_name) != len(FAULTS):
        sys.exit("two faults have one name")
    if options.names:
        print("\n".join(fault.name for fault in FAULTS if not fault.more))
        return 0
    unknown = [name for name in options.faults if name not in by_name]
    if options.build is None or unknown or not (options.all or options.faults):
        sys.exit(f"no such fault: {', '.join(unknown)}" if unknown else __doc__)
    build = Build(options.build.resolve(), shlex.split(options.launcher))
    chosen = [fault for fault in FAULTS if options.all or fault.name in options.faults]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda fault: attempt(fault, build, options.keep), chosen)
        for fault, (wrong, text) in zip(chosen, results):
            failed += wrong != ""
            verdict = wrong or ("reported" if fault.reported else "not reported, as said")
            print(f"{fault.name}: {verdict}", *shown(text), sep="\n    ", flush=True)
    if options.all:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{len(chosen)} faults, {failed} not as said, "
              f"{used.ru_utime + used.ru_stime:.0f} s of processor time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
