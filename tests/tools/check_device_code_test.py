"""Finds code that keeps a kernel body from compiling as plain C++, and nothing else."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_device_code as tool  # noqa: E402


class CheckDeviceCode(unittest.TestCase):
    def found(self, path: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            return tool.check(pathlib.Path(folder))

    def test_this_repository_passes(self):
        self.assertEqual(tool.check(ROOT), [])

    def test_each_rule_holds_where_it_should(self):
        for line, allowed in (('asm volatile("" : "+r"(x));', "src/cuda/ptx/pin.cuh"),
                              ("__builtin_assume(x > 0);", "src/cuda/ptx/registers.cuh"),
                              ("extern __shared__ char x[];", "src/cuda/ptx/shared_memory.cuh"),
                              ("return cudaLaunchKernel(f);", "src/cuda/host/launch_kernel.hpp"),
                              ("return cudaLaunchKernelExC(f);", "src/cuda/launch/start.cpp")):
            with self.subTest(line=line):
                self.assertEqual(self.found(allowed, f"\n{line}\n"), [])
                found = self.found("src/cuda/forward/kernel.cuh", f"\n{line}\n")
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith("src/cuda/forward/kernel.cuh:2: has "), found[0])
        self.assertEqual(len(self.found("src/cuda/ptx/mma.cuh", "kernel<<<1, 32>>>();\n")), 1)
        self.assertEqual(len(self.found("src/cuda/ptx/mma.cuh", "__shared__ int x;\n")), 1)

    def test_comments_and_longer_words_are_no_code(self):
        self.assertEqual(self.found("src/cuda/forward/kernel.cuh", "int asmbler;  // asm, __shared__, <<<\n"), [])


if __name__ == "__main__":
    unittest.main()
