#!/usr/bin/env python3
"""machine_code.py: which changes alter a function's digest, on hand-made programs and, if there is
an nvcc, on compiled ones."""
import contextlib
import copy
import ctypes
import io
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import machine_code as tool  # noqa: E402
from cubin import Cubin, Failure, device_programs, programs_of, zstd  # noqa: E402
from device_code import container, elf, entry, object_file, program  # noqa: E402

KERNELS = {"first": {"text": b"load add store..", "constants": b"1234", "registers": 40,
                     "shared": 1024, "arguments": (8, 128), "cluster": (2, 1, 1), "calls": "helper"},
           "second": {"text": b"load mul store..", "registers": 32},
           "helper": {"text": b"return.........."}}


def digests(kernels: dict) -> dict[str, str]:
    return {name: one.digest for name, one in Cubin(program(kernels)).functions().items()}


class Instructions(unittest.TestCase):
    def test_kernels_and_their_arguments_are_found(self):
        found = Cubin(program(KERNELS)).functions()
        self.assertEqual({name: one.argument_bytes for name, one in found.items()},
                         {"first": (8, 128), "second": (8,)})

    def test_names_and_order_are_no_matter(self):
        names = {"first": "z_first_renamed", "second": "second", "helper": "a_helper"}
        renamed = {names[name]: copy.deepcopy(KERNELS[name]) for name in reversed(KERNELS)}
        renamed["z_first_renamed"]["calls"] = "a_helper"
        before, after = digests(KERNELS), digests(renamed)
        self.assertEqual(before["first"], after["z_first_renamed"])
        self.assertEqual(before["second"], after["second"])

    def test_each_part_of_a_kernel_changes_its_hash_and_no_other(self):
        before = digests(KERNELS)
        for part, value in (("text", b"load sub store.."), ("constants", b"1235"),
                            ("registers", 41), ("shared", 1040), ("arguments", (8, 136)),
                            ("arguments", (8, 64, 64)), ("cluster", (1, 1, 1))):
            changed = copy.deepcopy(KERNELS)
            changed["first"][part] = value
            after = digests(changed)
            self.assertNotEqual(before["first"], after["first"], part)
            self.assertEqual(before["second"], after["second"], part)

    def test_what_a_kernel_calls_is_a_part_of_it(self):
        changed = copy.deepcopy(KERNELS)
        changed["helper"]["text"] = b"return 1........"
        self.assertNotEqual(digests(KERNELS)["first"], digests(changed)["first"])
        self.assertEqual(digests(KERNELS)["second"], digests(changed)["second"])
        itself = copy.deepcopy(KERNELS)
        itself["helper"] |= {"calls": "helper"}  # a cycle, which must end
        self.assertNotEqual(digests(KERNELS)["first"], digests(itself)["first"])

    def test_programs_of_every_container_are_found_and_other_kinds_are_not(self):
        fatbin = (container(entry(2, 80, b"abcd"), entry(1, 80, b"ptx."), entry(2, 90, b"ef")) +
                  b"\0" * 6 + container(entry(2, 89, b"gh")))
        self.assertEqual(device_programs(fatbin), [(80, b"abcd"), (90, b"ef"), (89, b"gh")])

    def test_an_object_without_device_code_has_no_programs(self):
        self.assertEqual(programs_of(elf({".text": b"host"})), [])

    def test_programs_that_were_packed(self):
        library = zstd()
        library.ZSTD_compress.restype = ctypes.c_size_t
        program = b"instructions " * 100
        packed = ctypes.create_string_buffer(4096)
        size = library.ZSTD_compress(packed, ctypes.c_size_t(4096), program, ctypes.c_size_t(len(program)), 3)
        content = packed.raw[:size].ljust(size + 5, b"\0")  # padded

        def packed_entry(packed_size, bytes_of_program):
            header = bytearray(entry(2, 90, content)[:64])
            struct.pack_into("<I", header, 16, packed_size)
            struct.pack_into("<I", header, 40, 0x10018011)
            struct.pack_into("<Q", header, 56, bytes_of_program)
            return bytes(header) + content
        self.assertEqual(device_programs(container(packed_entry(size, len(program)), entry(2, 89, b"gh"))),
                         [(90, program), (89, b"gh")])
        for wrong in ((size - 1, len(program)), (size, len(program) + 1)):
            with self.assertRaisesRegex(Failure, "cannot be unpacked"):
                device_programs(container(packed_entry(*wrong)))

    def test_broken_files_are_refused_with_a_sentence(self):
        good = program(KERNELS)
        for bad, sentence in ((b"", "no 64-bit"), (b"text", "no 64-bit"), (good[:100], "no ELF file"),
                              (good[:6] + b"\xff" * 90, "no ELF file")):
            with self.assertRaisesRegex(Failure, sentence):
                Cubin(bad)


RECORDED = """sm_90 fast 32 0 first
case sm_90 fast second first
case sm_90 fast first
case sm_90 fast first
case sm_80 slow second
case sm_89 slow second
launch sm_90 fast 0 first 1,1,1/32,1,1/0 00ff
"""


class Build(unittest.TestCase):
    """A whole build: an object, and a recorder with fixed output."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "a.cu.o").write_bytes(object_file({80: program(KERNELS), 90: program(KERNELS)}))
        (self.root / "objects.txt").write_text(f"{self.root}/a.cu.o\n{self.root}/not_there.cpp.o\n")
        (self.root / "recorded").write_text(RECORDED)
        (self.root / "recorder").write_text(f'#!/bin/sh\ncp "$2" {self.root}/sizes\ncat {self.root}/recorded\n')
        (self.root / "recorder").chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def run_tool(self, *more: str) -> int:
        names = {"objects": "objects.txt", "recorder": "recorder", "json": "code.json", "table": "code.inc"}
        words = [word for name, file in names.items() for word in (f"--{name}", str(self.root / file))]
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["machine_code.py", "--nvcc", "13.0.88", *words, *more]), \
                contextlib.redirect_stderr(said):
            code = tool.main()
        self.said = said.getvalue()
        return code

    def test_every_compiled_function_has_a_digest(self):
        self.assertEqual(self.run_tool(), 0, self.said)
        found = json.loads((self.root / "code.json").read_text())
        wanted = {name: digest[:16] for name, digest in digests(KERNELS).items()}
        self.assertEqual(set(wanted), {"first", "second"})
        self.assertEqual(found["functions"], {"sm_80": wanted, "sm_90": wanted})
        self.assertEqual(found["nvcc"], "13.0.88")
        self.assertEqual((self.root / "code.inc").read_text(), "".join(
            f'{{"{name}", {target}, "nvcc 13.0.88", "{wanted[name]}"}},\n'
            for target in (80, 90) for name in ("first", "second")))

    def test_cases_have_the_functions_that_they_launch(self):
        self.run_tool()
        found = json.loads((self.root / "code.json").read_text())
        self.assertEqual(found["cases"], {"sm_80": {"slow": [["second"]]},
                                          "sm_90": {"fast": [["first"], ["second", "first"]]}})

    def test_launches_can_be_kept(self):
        self.run_tool("--launches", str(self.root / "launches.txt"))
        self.assertEqual((self.root / "launches.txt").read_text(), "sm_90 fast 0 first 1,1,1/32,1,1/0 00ff\n")
        self.assertEqual((self.root / "sizes").read_text(), "first 8 128\nsecond 8\n")

    def test_a_recorder_that_fails_ends_it(self):
        (self.root / "recorder").write_text("#!/bin/sh\necho two plans differ >&2; exit 1\n")
        self.assertEqual(self.run_tool(), 1)
        self.assertIn("failed: two plans differ", self.said)
        self.assertFalse((self.root / "code.json").exists())

    def test_two_kernels_of_one_name_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("a.cu.o", "b.cu.o")]
            for path, text in zip(paths, (b"abcd", b"abce")):
                path.write_bytes(object_file({80: program({"k": {"text": text, "registers": 8}})}))
            with self.assertRaisesRegex(Failure, "b.cu.o: has another kernel k for sm_80"):
                tool.read_functions(paths)
            paths[1].unlink()
            with self.assertRaisesRegex(Failure, "b.cu.o: cannot be read: No such file"):
                tool.read_functions(paths)


SOURCE = """
#include "%(header)s"
namespace %(space)s {
namespace { __device__ __constant__ float table[4] = {1, 2, 3, 4}; }
template <int kCount>
__global__ void scaled(Arguments arguments, float* out) {  %(comment)s
  const int %(local)s = blockIdx.x * blockDim.x + threadIdx.x;
  __shared__ float rows[32 * kCount];
  rows[threadIdx.x] = arguments.in[%(local)s] * %(constant)s + table[threadIdx.x & 3];
  __syncthreads();
  out[%(local)s] = rows[threadIdx.x ^ 1];
}
template __global__ void scaled<4>(Arguments, float*);
static __global__ void added(Arguments arguments, float* out) {
  out[threadIdx.x] = arguments.in[threadIdx.x] + arguments.more;
}
void use(Arguments arguments) { added<<<1, 32>>>(arguments, nullptr); }
}
"""
HEADER = "#pragma once\nstruct Arguments { const float* in; float more; };\n"
BASE = {"header": "arguments.hpp", "space": "first", "comment": "", "local": "i", "constant": "3.0f"}


def find_nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@unittest.skipUnless(find_nvcc(), "there is no nvcc")
class Compiled(unittest.TestCase):
    def digests(self, **changes) -> list[str]:
        """Digests `added`, then `scaled`, compiled in a separate folder."""
        words = BASE | changes
        with tempfile.TemporaryDirectory(suffix="_" + words["space"]) as folder:
            root = pathlib.Path(folder)
            (root / words["header"]).parent.mkdir(exist_ok=True)
            (root / words["header"]).write_text(HEADER)
            (root / f"{words['space']}.cu").write_text(SOURCE % words)
            subprocess.run([find_nvcc(), "-c", f"{words['space']}.cu", "-o", "a.o", "-gencode",
                            "arch=compute_90a,code=sm_90a"], cwd=root, check=True)
            found = tool.read_functions([root / "a.o"])
        self.assertEqual(list(found), [90])
        self.assertEqual([one.argument_bytes for one in found[90].values()], [(16, 8)] * 2)
        scaled, = [one.digest for name, one in found[90].items() if "scaled" in name]
        added, = [one.digest for name, one in found[90].items() if "added" in name]
        return [added, scaled]

    def test_only_what_changes_instructions_changes_a_hash(self):
        before = self.digests()
        self.assertEqual(before, self.digests(header="moved/other_arguments.hpp", space="another",
                                              comment="// a comment", local="index"))
        added, scaled = self.digests(constant="3.5f")
        self.assertEqual(before[0], added)
        self.assertNotEqual(before[1], scaled)


if __name__ == "__main__":
    unittest.main()
