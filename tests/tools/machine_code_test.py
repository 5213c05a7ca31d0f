#!/usr/bin/env python3
"""machine_code.py: what changes a kernel's hash and what does not, on programs made by hand and, where
there is an nvcc, on compiled ones."""
import copy
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import machine_code as tool  # noqa: E402
from cubin import Cubin, Failure, device_programs, programs_of  # noqa: E402
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
        itself["helper"] |= {"calls": "helper"}  # and that ends
        self.assertNotEqual(digests(KERNELS)["first"], digests(itself)["first"])

    def test_programs_of_every_container_are_found_and_other_kinds_are_not(self):
        fatbin = (container(entry(2, 80, b"abcd"), entry(1, 80, b"ptx."), entry(2, 90, b"ef")) +
                  b"\0" * 6 + container(entry(2, 89, b"gh")))
        self.assertEqual(device_programs(fatbin), [(80, b"abcd"), (90, b"ef"), (89, b"gh")])

    def test_an_object_without_device_code_has_no_programs(self):
        self.assertEqual(programs_of(elf({".text": b"host"})), [])

    def test_broken_files_are_refused_with_a_sentence(self):
        good = program(KERNELS)
        for bad, sentence in ((b"", "no 64-bit"), (b"text", "no 64-bit"), (good[:100], "no ELF file"),
                              (good[:6] + b"\xff" * 90, "no ELF file")):
            with self.assertRaisesRegex(Failure, sentence):
                Cubin(bad)


def functions(kernels: dict, targets=(80, 90)) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.cu.o"
        path.write_bytes(object_file({target: program(kernels) for target in targets}))
        return tool.read_functions([path])


def launch(kernel: str, case: int, function: str, geometry: str = "1,1,1/32,1,1/0",
           arguments: str = "00ff", family: str = "sm_90") -> str:
    return f"launch {family} {kernel} {case} {function} {geometry} {arguments}"


RECORDED = ["sm_90 fast 32 0 first", "sm_90 slow 32 0 second", "sm_80 slow 32 0 second",
            launch("fast", 0, "first"), launch("fast", 1, "first", arguments="00fe"),
            launch("slow", 0, "second"), launch("slow", 0, "second", family="sm_80")]


class Hashes(unittest.TestCase):
    def hashes(self, lines, kernels=None, targets=(80, 90)):
        return tool.hashes(functions(kernels or KERNELS, targets), "\n".join(lines))

    def test_kernels_have_one_a_family(self):
        found = self.hashes(RECORDED)
        self.assertEqual({kernel: list(one) for kernel, one in found.items()},
                         {"fast": ["sm_90"], "slow": ["sm_80", "sm_90"]})
        self.assertRegex(found["fast"]["sm_90"], "^[0-9a-f]{16}$")

    def test_the_order_of_kernels_cases_and_files_is_no_matter(self):
        renumbered = [line.replace("fast 0", "fast 7") for line in reversed(RECORDED)]
        self.assertEqual(self.hashes(RECORDED), self.hashes(renumbered))

    def test_a_function_or_a_launch_changes_its_own_kernel_alone(self):
        before = self.hashes(RECORDED)
        changed = copy.deepcopy(KERNELS)
        changed["first"]["text"] = b"load sub store.."
        for after in (self.hashes(RECORDED, changed),
                      self.hashes([line.replace("00fe", "00fd") for line in RECORDED]),
                      self.hashes([*RECORDED[:3], launch("fast", 0, "first", "2,1,1/32,1,1/0"),
                                   *RECORDED[4:]]),
                      self.hashes([*RECORDED, launch("fast", 1, "second")]),  # after the other
                      self.hashes([*RECORDED, "sm_90 fast 32 0 second"])):
            self.assertNotEqual(before["fast"], after["fast"])
            self.assertEqual(before["slow"], after["slow"])

    def test_a_family_that_a_build_has_no_code_for_is_left_out(self):
        self.assertEqual(self.hashes(RECORDED, targets=(80,)),
                         {"slow": {"sm_80": self.hashes(RECORDED)["slow"]["sm_80"]}})

    def test_a_gpu_runs_the_newest_code_of_its_generation(self):
        images = {80: "a", 89: "b", 90: "c"}
        self.assertEqual([tool.image_for(images, one) for one in (75, 80, 86, 89, 90, 100)],
                         [None, "a", "a", "b", "c", None])

    def test_the_table_names_the_compiler_and_the_family(self):
        self.assertEqual(tool.table("13.0.88", {"fast": {"sm_90": "0123"}}),
                         '{"fast", 90, "nvcc 13.0.88 sm_90 0123"},\n')

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
        """Of `added`, then of `scaled`, compiled in a folder of their own."""
        words = BASE | changes
        with tempfile.TemporaryDirectory(suffix="_" + words["space"]) as folder:
            root = pathlib.Path(folder)
            (root / words["header"]).parent.mkdir(exist_ok=True)
            (root / words["header"]).write_text(HEADER)
            (root / f"{words['space']}.cu").write_text(SOURCE % words)
            subprocess.run([find_nvcc(), "-c", f"{words['space']}.cu", "-o", "a.o", "-gencode",
                            "arch=compute_90a,code=sm_90a"], cwd=root, check=True)
            found = tool.read_functions([root / "a.o"])
        self.assertEqual(len(found), 2)
        self.assertTrue(all(list(one) == [90] for one in found.values()))
        self.assertEqual({one[90].argument_bytes for one in found.values()}, {(16, 8)})
        scaled, = [one[90].digest for name, one in found.items() if "scaled" in name]
        added, = [one[90].digest for name, one in found.items() if "added" in name]
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
