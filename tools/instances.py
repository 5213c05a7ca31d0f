#!/usr/bin/env python3
"""Generates the source files of compiled kernels, and their lists, from each kernel.json.

    instances.py groups FOLDER [--apart]        writes FOLDER/cuda/.../GROUP.cu for each group, and prints for
                                                each "family file only except", with - for no target
    instances.py table FOLDER [--stubs] [--without FILE...]
                                                writes FOLDER/cuda/launch/instances.cpp: the lists, without groups that
                                                are not compiled; with --stubs: without kernels (tests/cuda/stubs)

--apart: one file per compiled kernel, or for those of one `unit`.

"instances" of a kernel.json:

    "header":    defines the kernels; in the folder or from src
    "namespace": below flashcore::cuda; by default the folder's
    "shape":     launch::Shape's members, as C++; a row's own are added
    "list":      rows: "name", "kernel" and "group", as text in which {...} stands for values of "over"; "namespace",
                 "header", "shape"; "only" or "except": a target; "unit": its file for the simulator

For "type" in "over" (f16, bf16, f32, fp8), {element} is fp16, bf16, ... and {Element} the C++ type Fp16, Bf16, ...
"""
import argparse
import dataclasses
import itertools
import json
import pathlib
import sys

from fingerprint import write

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
# launch::Shape's members, in order.
SHAPE = dict.fromkeys(("threads", "shared_bytes", "blocks_per_sm", "cluster"), "unsigned int") | {"prefers_shared": "bool"}
ROW = {"name", "kernel", "group", "over", "namespace", "header", "shape", "only", "except", "unit"}


@dataclasses.dataclass
class Instance:
    family: str
    name: str
    kernel: str
    namespace: str
    header: str
    shape: dict
    file: str  # its group's file, below the generated folder
    only: str
    without: str  # the target of "except"
    unit: str  # the file for --apart, without .cu

    def maker(self):
        """Returns its declaration, for its namespace."""
        return f"launch::Instance make_{self.name}()"


def elements(values):
    """Adds the values that follow from a type."""
    if "type" in values:
        bits = values["type"]
        name = {"f16": "fp16", "f32": "fp32"}.get(bits, bits)
        values = values | {"element": name, "Element": name.capitalize()}
    return values


def expand(path, source, family, described):
    """Returns the instances of a kernel.json."""
    folder = path.parent.relative_to(source)
    own = described.get("namespace", "::".join(folder.parts[1:]))
    for row in described["list"]:
        namespace = row.get("namespace", own)
        unknown = set(row) - ROW
        unknown |= set(row.get("shape", {})) - set(SHAPE) | set(described.get("shape", {})) - set(SHAPE)
        if unknown:
            raise SystemExit(f"{path}: instances: '{sorted(unknown)[0]}' is unknown")
        for key in ("name", "kernel", "group"):
            if key not in row:
                raise SystemExit(f"{path}: instances: {row}: '{key}' is missing")
        over = row.get("over", {})
        for values in itertools.product(*over.values()):
            filled = elements(dict(zip(over, values)))

            def fill(text, filled=filled):
                try:
                    return str(text).format_map(filled)
                except KeyError as missing:
                    raise SystemExit(f"{path}: instances: {text}: {missing} is not in \"over\"") from missing

            header = fill(row.get("header", described.get("header", "kernel.cuh")))
            if "/" not in header:
                header = f"cuda/{namespace.replace('::', '/')}/{header}"
            shape = {key: fill(value) for key, value in (described.get("shape", {}) | row.get("shape", {})).items()}
            yield Instance(family, fill(row["name"]), fill(row["kernel"]), namespace, header, shape,
                           f"{folder.relative_to('cuda')}/{fill(row['group'])}.cu", row.get("only", "-"),
                           row.get("except", "-"), row.get("unit", fill(row["name"])))


def read(source):
    """Returns all instances, by family."""
    all_of = {}
    for path in sorted([*source.glob("cuda/*/kernel.json"), *source.glob("cuda/*/*/kernel.json")]):
        data = json.loads(path.read_text(encoding="utf-8"))
        if "instances" in data:
            all_of[data["name"]] = list(expand(path, source, data["name"], data["instances"]))
            names = [one.name for one in all_of[data["name"]]]
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise SystemExit(f"{path}: instances: '{sorted(twice)[0]}' is there twice")
    return all_of


def group_text(group):
    lines = ["// Made by tools/instances.py.", '#include "cuda/launch/describe.hpp"']
    lines += [f'#include "{header}"' for header in dict.fromkeys(one.header for one in group)]
    for namespace, members in itertools.groupby(group, lambda one: one.namespace):
        lines += ["", f"namespace flashcore::cuda::{namespace} {{"]
        for one in members:
            shape = ", ".join(f".{key} = static_cast<{SHAPE[key]}>({one.shape[key]})" for key in SHAPE if key in one.shape)
            lines += ["", f"{one.maker()} {{",
                      f'  return launch::describe("{one.name}", &{one.kernel}, {{{shape}}});', "}"]
        lines += ["", f"}}  // namespace flashcore::cuda::{namespace}"]
    return "\n".join(lines) + "\n"


def groups(source, out, apart):
    files = {}
    for instances in read(source).values():
        for one in instances:
            if apart:
                one.file = f"{pathlib.PurePosixPath(one.file).parent}/{one.unit}.cu"
            files.setdefault(one.file, []).append(one)
    for file, group in files.items():
        write(out / file, group_text(group))
        print(group[0].family, file, group[0].only, group[0].without)


STUB = """
// Another address for each, by which the runtime knows it.
template <int kNumber>
const void* stub(const char* name) {
  static const char function = 0;
  static const bool is_registered = [&] {
    __cudaRegisterFunction(nullptr, &function, nullptr, name, 0, nullptr, nullptr, nullptr, nullptr, nullptr);
    return true;
  }();
  (void)is_registered;
  return &function;
}
"""


def table_text(all_of, stubs):
    lines = ["// Made by tools/instances.py: the lists of compiled kernels.", '#include "cuda/launch/instance.hpp"', ""]
    if stubs:
        lines += ["#include <cuda_runtime_api.h>", "",
                  'extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*,',
                  "                                       dim3*, dim3*, int*);", ""]
    else:
        for instances in all_of.values():
            for one in instances:
                lines.append(f"namespace flashcore::cuda::{one.namespace} {{ {one.maker()}; }}")
    lines += ["", "namespace flashcore::cuda::launch {", "namespace {"]
    lines += STUB.splitlines() if stubs else []
    numbers = itertools.count()
    for family, instances in all_of.items():
        lines += ["", f"std::span<const Instance> list_of_{family}() {{"]
        if instances:
            lines.append("  static const Instance list[] = {")
            for one in instances:
                lines.append(f'      {{"{one.name}", stub<{next(numbers)}>("{family}:{one.name}"), nullptr, {{.threads = 32}}}},'
                             if stubs else f"      cuda::{one.namespace}::make_{one.name}(),")
            lines += ["  };", "  return list;", "}"]
        else:
            lines += ["  return {};", "}"]
    lines += ["", "constexpr std::string_view kFamilies[] = {"]
    lines += [f'    "{family}",' for family in all_of]
    lines += ["};", "", "}  // namespace", "", "std::span<const std::string_view> families() { return kFamilies; }", "",
              "std::span<const Instance> instances(std::string_view family) {"]
    lines += [f'  if (family == "{family}") return list_of_{family}();' for family in all_of]
    lines += ["  return {};", "}", "", "}  // namespace flashcore::cuda::launch", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["groups", "table"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path, default=SOURCE)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--stubs", action="store_true")
    parser.add_argument("--without", nargs="*", default=[], help="files of groups that are not compiled")
    options = parser.parse_args()
    if options.what == "groups":
        groups(options.source, options.folder, options.apart)
        return 0
    all_of = {family: [one for one in instances if one.file not in options.without]
              for family, instances in read(options.source).items()}
    write(options.folder / "cuda/launch/instances.cpp", table_text(all_of, options.stubs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
