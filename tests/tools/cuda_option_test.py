"""FLASHCORE_CUDA: its values, and the reason that is given if CUDA is left out.

cmake/cuda.cmake runs in a separate project; scripts/common.sh reports on the folder. Also
cmake/write_commit.cmake: what a build says about its sources.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(one LANGUAGES NONE)
set(FLASHCORE_CUDA "AUTO" CACHE STRING "")
include({ROOT}/cmake/cuda.cmake)
"""


class CudaOption(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.source, self.build = (pathlib.Path(self.folder.name) / name for name in ("one", "build"))
        self.source.mkdir()
        (self.source / "CMakeLists.txt").write_text(PROJECT)

    def tearDown(self):
        self.folder.cleanup()

    def configure(self, *options):
        return subprocess.run(["cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, *options],
                              capture_output=True, text=True, check=False)

    def reported(self):
        command = f"set -euo pipefail; source '{ROOT}/scripts/common.sh'; report_cuda '{self.build}'"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True,
                              check=True).stdout

    def test_a_build_without_cuda_says_that_it_was_switched_off(self):
        for value in ("OFF", "off", "0", "NO", "FALSE"):
            done = self.configure(f"-DFLASHCORE_CUDA={value}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"CUDA kernels: not built (FLASHCORE_CUDA is {value}); the CPU is used",
                          done.stdout)
            self.assertEqual(self.reported(), f"CUDA: FLASHCORE_CUDA is {value}, so the CUDA kernels "
                             "are not built; the CPU is used.\n")

    def test_other_values_are_refused(self):
        for value in ("maybe", ""):
            done = self.configure(f"-DFLASHCORE_CUDA={value}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"FLASHCORE_CUDA is '{value}', wanted AUTO, ON or OFF", done.stderr)

    @unittest.skipIf(shutil.which("nvcc") or pathlib.Path("/usr/local/cuda/bin/nvcc").exists(),
                     "there is an nvcc; the stages that hide it run this")
    def test_without_a_compiler_it_says_that_none_was_found(self):
        done = self.configure()
        self.assertIn("CUDA kernels: not built (nvcc was not found); the CPU is used", done.stdout)
        self.assertIn("CUDA: nvcc was not found, so", self.reported())
        for value in ("ON", "1"):
            done = self.configure(f"-DFLASHCORE_CUDA={value}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"FLASHCORE_CUDA is {value}, but no CUDA compiler (nvcc) was found",
                          " ".join(done.stderr.split()))

    def native(self, capabilities, status=0):
        """Returns the targets of `native` for this output of nvidia-smi, and cmake's complaints."""
        smi = pathlib.Path(self.folder.name) / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\nprintf '{capabilities}'\nexit {status}\n")
        smi.chmod(0o755)
        script = pathlib.Path(self.folder.name) / "native.cmake"
        script.write_text(f"include({ROOT}/cmake/native_targets.cmake)\n"
                          "flashcore_native_targets(found)\nmessage(STATUS \"[${found}]\")\n")
        done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{smi.parent}:{os.environ['PATH']}"})
        return done.stdout.strip().removeprefix("-- "), " ".join(done.stderr.split())

    def test_native_is_what_the_gpus_here_need(self):
        for capabilities, wanted in (("9.0\\n", "90a"), ("8.9\\n8.9\\n", "89"), ("8.6", "86"),
                                     ("8.0\\n9.0\\n", "80;90a"), ("12.0\\n", "80+ptx")):
            self.assertEqual(self.native(capabilities), (f"[{wanted}]", ""))

    def test_native_is_refused_where_no_gpu_is_found_or_one_is_too_old(self):
        for capabilities, status in (("", 0), ("9.0\\n", 6), ("No devices were found\\n", 0)):
            self.assertIn("nvidia-smi names no GPU here", self.native(capabilities, status)[1])
        self.assertIn("a GPU of compute capability 7.5 here, wanted 8.0 or later",
                      self.native("7.5\\n")[1])


class Commit(unittest.TestCase):
    def written(self, output, **environment):
        subprocess.run(["cmake", f"-DROOT={ROOT}", f"-DOUTPUT={output}", "-P", ROOT / "cmake/write_commit.cmake"],
                       check=True, env=os.environ | environment)
        return output.read_text()

    def test_a_build_of_the_same_day_and_source_compiles_nothing_again(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "commit.hpp"
            first = self.written(output, SOURCE_DATE_EPOCH="86400")
            self.assertIn('kDay[] = "1970-01-02";', first)
            os.utime(output, (1, 1))
            self.assertEqual(self.written(output, SOURCE_DATE_EPOCH="86401"), first)
            self.assertEqual(output.stat().st_mtime, 1)
            self.assertIn('kDay[] = "1970-01-03";', self.written(output, SOURCE_DATE_EPOCH="172800"))

    def test_without_git_the_commit_is_not_known(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "cmake").symlink_to(shutil.which("cmake"))
            text = self.written(pathlib.Path(folder) / "commit.hpp", PATH=folder)
            self.assertIn('kCommit[] = "";', text)
            self.assertIn("kModified = false;", text)


if __name__ == "__main__":
    unittest.main()
