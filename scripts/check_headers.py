#!/usr/bin/env python3
"""Every header compiles alone; the public ones with GCC and Clang, the C one also as C.

Where a file names a header before it says anything else, compiling that file begins with compiling
the header alone. So what a source file of the build begins with is not compiled here, nor what
another header begins with.

A header that includes one of a toolkit or package that is not here (CUDA, cuDNN), itself or through
our headers, is left out, and counted.

usage: check_headers.py [--changed] [BUILD_DIRECTORY]    a configured directory, default build; --changed: only
                                                         headers that a change reaches, as tidy.py knows it
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tidy

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Headers that only some machines have, as they are written in an #include.
OPTIONAL = re.compile(r"(cuda|cublas|cudnn|mma\.h|nvml|vector_types\.h|oneapi/)")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
# What is before the first directive of a file and says nothing to the compiler.
SILENT = re.compile(r"(?:\s|//[^\n]*\n|#pragma once\n)*")

HOST = "-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror".split()
SIMD = "-Wno-unknown-pragmas -O1".split()
AVX2 = ["-DFLASHCORE_SIMD_TARGET=HWY_AVX2", "-DFLASHCORE_SIMD_NAMESPACE=avx2"]
AMX = ["-include", "immintrin.h", "-DFLASHCORE_SIMD_TARGET=HWY_AVX3",
       "-DFLASHCORE_SIMD_NAMESPACE=amx", "-DFLASHCORE_SIMD_BF16", "-DFLASHCORE_SIMD_AMX",
       '-DFLASHCORE_SIMD_EXTRA=",avx512bf16,amx-tile,amx-bf16"']


# Nothing of ours; the simulator, whose own headers stand for CUDA's: its build compiles them; and what needs the headers
# of other projects.
ELSEWHERE = ("out", "sim", "adapters")


class Tree:
    """Our files and what they include."""

    def __init__(self, build):
        self.roots = [ROOT, ROOT / "include", ROOT / "src", build / "src" / "generated",
                      build / "src" / "cuda" / "generated"]

    def headers(self):
        """Paths of our headers, relative to the root, without what was built."""
        found = []
        for folder, folders, files in os.walk(ROOT):
            here = pathlib.Path(folder)
            if here == ROOT:
                folders[:] = [name for name in folders
                              if not name.startswith((".", "build")) and name not in ELSEWHERE]
            found += [str((here / name).relative_to(ROOT)) for name in files
                      if name.endswith((".h", ".hpp", ".cuh"))]
        return sorted(found)

    def find(self, name, includer):
        """Our file that `#include "name"` means, or None."""
        for folder in [includer.parent, *self.roots]:
            if (folder / name).is_file():
                return (folder / name).resolve()
        return None

    def first(self, path):
        """Our header that a file includes before it says anything else, or None."""
        text = path.read_text()
        named = INCLUDE.match(text, SILENT.match(text).end())
        return self.find(named[2], path) if named else None

    def compiled_first(self, sources):
        """The headers with which compiling these files begins: {path}."""
        found = set()
        for path in sources:
            while (path := self.first(path)) is not None and path not in found:
                found.add(path)
        return found

    @functools.cache
    def reaches(self, path):
        """(the names in <>, our files) that a file of ours includes, itself or through our files; itself too."""
        names, seen, waiting = set(), {path}, [path]
        while waiting:
            one = waiting.pop()
            for mark, name in INCLUDE.findall(one.read_text()):
                ours = self.find(name, one)
                if ours is None:
                    names.add(name)
                elif ours not in seen:
                    seen.add(ours)
                    waiting.append(ours)
        return names, seen


def toolkit(build):
    """(nvcc, its folders of headers) of a configured build, or (None, [])."""
    cache = dict(re.findall(r"^(\w+)_CACHED:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(),
                            re.M))
    if cache["FLASHCORE_HAS_CUDA"] != "ON":
        return None, []
    return cache["FLASHCORE_CUDA_COMPILER"], cache["FLASHCORE_CUDA_INCLUDES"].split(";")


def missing_names(names, flags):
    """Those of the names that the compiler does not find."""
    text = "".join(f"#if !__has_include(<{name}>)\nmissing {name}\n#endif\n" for name in names)
    run = subprocess.run(["g++", "-E", "-P", "-xc++", *flags, "-"], input=text, text=True,
                         capture_output=True, check=True)
    return {line.split()[1] for line in run.stdout.splitlines() if line.startswith("missing ")}


def built_sources(build, suffix):
    """The files of that kind that a configured build compiles."""
    entries = json.loads((build / "compile_commands.json").read_text())
    return {pathlib.Path(entry["file"]) for entry in entries if entry["file"].endswith(suffix)}


def begun_with(tree, build, headers):
    """Those of the headers with which another compilation begins: of the build, or of a header alone."""
    # The public headers have more than one compiler to please, and a target's its own flags.
    paths = {header: (ROOT / header).resolve() for header in headers
             if not header.startswith("include/") and not header.endswith("-inl.hpp")}
    found = set()
    for suffix, source in ((".hpp", ".cpp"), (".cuh", ".cu")):
        ours = {path for path in paths.values()
                if path.suffix == suffix and "\n#pragma once\n" in path.read_text()}
        begun = tree.compiled_first(built_sources(build, source)) & ours
        found |= begun | (tree.compiled_first(ours - begun) & ours)
    return {header for header, path in paths.items() if path in found}


def compile_alone(header, command):
    """Compiles a file that includes only that header, twice; what the compiler said, or None."""
    with tempfile.NamedTemporaryFile("w", suffix=".cu") as source:
        source.write(f'#include "{header}"\n#include "{header}"\n')
        source.flush()
        run = subprocess.run([*command, source.name], text=True, capture_output=True, cwd=ROOT,
                             check=False)
    return None if run.returncode == 0 else run.stdout + run.stderr


def commands(header, ours, cuda, nvcc):
    """The compilers that a header has to please: commands that want the name of a file."""
    path = pathlib.Path(header)
    gxx = ["g++", "-std=c++20", *HOST, *ours, *cuda]
    if path.suffix == ".cuh":
        # Device code is all in templates and inline functions: the front end alone sees it.
        return [[nvcc, "-std=c++20", "--expt-relaxed-constexpr",
                 "-gencode=arch=compute_90a,code=sm_90a", *ours, "--cuda", "-o", "/dev/null"]]
    if path.name.endswith("amx-inl.hpp"):  # as src/cpu/simd/forward_amx.cpp does
        return [[*gxx, *SIMD, *AMX, "-xc++"]]
    if path.name.endswith("-inl.hpp"):
        return [[*gxx, *SIMD, *AVX2, "-xc++"]]
    if path.parts[0] != "include":
        return [[*gxx, "-xc++"]]
    found = []
    for cxx, c in (("g++", "gcc"), ("clang++-14", "clang-14")):
        if shutil.which(cxx) is None:
            continue
        if path.suffix == ".hpp":
            found.append([cxx, "-std=c++20", *HOST, "-Iinclude", "-xc++"])
        else:
            found.append([cxx, "-std=c++11", *HOST, "-Iinclude", "-xc++"])
            found.append([c, "-std=c11", *HOST, "-Wc++-compat", "-Iinclude", "-xc"])
    return found


def main():
    words = sys.argv[1:]
    changed = tidy.changed_files() if words[:1] == ["--changed"] else None
    words = [word for word in words if word != "--changed"]
    build = (ROOT / (words[0] if words else "build")).resolve()
    nvcc, includes = toolkit(build)
    tree = Tree(build)
    ours = [f"-I{folder}" for folder in tree.roots]
    cuda = [f"-isystem{folder}" for folder in includes]
    every = {header: tree.reaches((ROOT / header).resolve()) for header in tree.headers()}
    headers = {header: names for header, (names, files) in every.items()
               if changed is None or files & changed}
    missing = {name for name in missing_names(sorted(set().union(*headers.values())), cuda)
               if OPTIONAL.match(name)}
    checks, left_out = [], []
    begun = begun_with(tree, build, headers)
    for header, outside in headers.items():
        if header in begun:
            continue
        if outside & missing or (header.endswith(".cuh") and nvcc is None):
            left_out.append(header)
            continue
        name = header.removeprefix("src/").removeprefix("include/")
        checks += [(name, command) for command in commands(header, ours, cuda, nvcc)]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, command), complaint in zip(checks, pool.map(lambda one: compile_alone(*one),
                                                               checks)):
            if complaint is not None:
                bad += 1
                print(f"{complaint}{name} does not compile alone with: {' '.join(command)}")
    print(f"{len(headers)} of {len(every)} headers, {len(begun)} with which another compilation begins; "
          f"{len(checks)} compilations of others; {len(left_out)} left out"
          + (f", for want of {', '.join(sorted(missing)) or 'nvcc'}" if left_out else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
