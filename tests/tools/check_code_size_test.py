#!/usr/bin/env python3
"""check_code_size.py on hand-made objects."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_code_size as tool  # noqa: E402
from device_code import container, elf, entry  # noqa: E402
from kernel_folders import Folder  # noqa: E402

KERNELS = [Folder("forward/kernel", "kernel", {}, 1, [])]


class CodeSize(unittest.TestCase):
    def test_a_kernel_is_the_sum_of_its_objects(self):
        with tempfile.TemporaryDirectory() as build:
            base = pathlib.Path(build) / "src/cuda/CMakeFiles/flashcore_cuda.dir"
            listed = []
            for file, size in (("forward/kernel/a", 64), ("generated/forward/kernel/b", 40),
                               ("forward/kernel_b/c", 1000), ("forward/kernel/of_an_older_build", 500)):
                contents = elf({".nv_fatbin": container(entry(2, 80, b"x" * size))})
                (base / file).parent.mkdir(parents=True, exist_ok=True)
                (base / f"{file}.cu.o").write_bytes(contents)
                if "older" not in file:
                    listed.append(f"{base}/./{file}.cu.o")
            (pathlib.Path(build) / tool.OBJECTS).write_text("\n".join(listed), encoding="utf-8")
            self.assertEqual(dict(tool.sizes(pathlib.Path(build), KERNELS)),
                             {("kernel", "sm_80"): 104})

    def test_a_family_is_held_to_its_own_size(self):
        self.assertEqual(tool.complaints({("kernel", "sm_80"): 1024}, KERNELS), [])
        self.assertEqual(tool.complaints({("kernel", "sm_80"): 1024, ("kernel", "sm_90"): 1025}, KERNELS),
                         ["over budget: kernel has 1025 bytes of code for sm_90, at most 1024"])
        self.assertIn("no device code was found", tool.complaints({}, KERNELS)[0])


if __name__ == "__main__":
    unittest.main()
