#!/usr/bin/env python3
"""Clang on the device code of a build that GCC made (-DFLASHCORE_SIMULATOR=ON).

usage: clang.py --build DIRECTORY [--clang PROGRAM] [--launcher PROGRAM] read | run

read    Clang reads every translation unit of device code, with every instance of a template: -fsyntax-only, all that
        are made from one file at once.
run     Clang compiles a kernel of each family. They are linked in front of GCC's, and their results are checked.

The exit status is 77 when Clang cannot read the system's C++ library (Clang 14 on Ubuntu 24.04).
"""
import argparse
import collections
import pathlib
import shlex
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "kernel_faults"))

import backward  # noqa: E402
import forward_sm80  # noqa: E402
import forward_sm90  # noqa: E402
import ladder  # noqa: E402
from device_units import Build, BuildError, run  # noqa: E402

GCC_ALONE = ("-fstack-reuse=none",)
CLANG_ALONE = ("-mllvm", "-no-stack-coloring", "-include", "clang_calls.h")  # as sim/CMakeLists.txt has them
SKIPPED = 77
SECONDS = 120  # a run that takes longer has hung
KERNELS = [  # a translation unit, and what runs it
    (forward_sm90.TALL_UNIT, forward_sm90.TALL), (forward_sm90.CLUSTER_UNIT, forward_sm90.CLUSTER),
    (forward_sm90.SHARED_UNIT, forward_sm90.SHARED),
    (forward_sm80.AMPERE_UNIT, forward_sm80.AMPERE), (forward_sm80.AMPERE_LATENCY_UNIT, forward_sm80.AMPERE_LATENCY),
    (backward.JOINT_UNIT, backward.JOINT), (backward.BACKWARD_UNIT, backward.BACKWARD),
    (backward.HOPPER_UNIT, backward.HOPPER), (backward.ANY_ORDER_UNIT, backward.ANY_ORDER),
    (ladder.LADDER + "12_mma_sync.cu", ladder.RUNG_12), (ladder.LADDER + "15_wgmma_tma.cu", ladder.RUNG_15)]


def with_clang(clang, words):
    return [clang, *[word for word in words[1:] if word not in GCC_ALONE]]


def without_output(words):
    """The words without `-o FILE` and `-c FILE`."""
    kept = list(words)
    for option in ("-o", "-c"):
        at = kept.index(option)
        del kept[at:at + 2]
    return kept


def read(build, clang, folder):
    """How many units Clang has read."""
    generated = build.folder / "src/cuda/generated"
    alike = collections.defaultdict(list)  # by what reads them: the command, and the folder or the file
    for file, words in build.device_units():
        # A file with names of its own is read by itself.
        together = file.is_relative_to(generated) and "namespace {" not in file.read_text()
        place = file.parent if together else file
        alike[tuple(without_output(words)), place].append(file)
    count = 0
    for (words, _), files in alike.items():
        source = folder / "all.cu"
        source.write_text("".join(f'#include "{file}"\n' for file in files))
        status, text = run([*with_clang(clang, words), "-fsyntax-only", source], cwd=build.folder)
        if status != 0:
            raise BuildError(f"{clang} does not read {files[0]} and {len(files) - 1} like it:\n{text[:6000]}")
        count += len(files)
    return count


def run_kernels(build, clang, folder):
    """How many kernels of Clang's have run."""
    objects = []
    for number, (unit, _) in enumerate(KERNELS):
        _, words = build.unit(unit)
        objects.append(folder / f"{number}.o")
        build.compile([*with_clang(clang, words), *CLANG_ALONE], objects[-1])
    build.link(objects, folder / "flashcore")
    for unit, arguments in KERNELS:
        status, text = run([folder / "flashcore", *arguments], SECONDS)
        if status != 0:
            raise BuildError(f"{unit}, compiled by {clang}, fails with exit code {status}:\n{text[:3000]}")
    return len(KERNELS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder with the simulator")
    parser.add_argument("--clang", default="clang++-14")
    parser.add_argument("--launcher", default="", help="runs the compiler, such as ccache")
    parser.add_argument("what", choices=["read", "run"])
    options = parser.parse_args()
    status, _ = run([options.clang, "-std=c++20", "-fsyntax-only", "-xc++", "-include", "chrono", "/dev/null"])
    if status != 0:
        print(f"{options.clang} is not there or cannot read this system's C++ library")
        return SKIPPED
    build = Build(options.build.resolve(), shlex.split(options.launcher))
    folder = build.folder / "sim/tests/clang" / options.what
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if options.what == "read":
            count = read(build, options.clang, folder)
            print(f"{options.clang} reads {count} translation units of device code")
        else:
            count = run_kernels(build, options.clang, folder)
            print(f"{count} kernels that {options.clang} compiled give right results")
    except BuildError as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
