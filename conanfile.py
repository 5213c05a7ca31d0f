"""A recipe for Conan 2: the library alone. scripts/check_conan.sh creates and uses it.

What it is built from are headers of the system's packages, and none of them is needed by a program that uses the library.
"""
import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.system.package_manager import Apt


class Flashcore(ConanFile):
    name = "flashcore"
    license = "MIT"
    description = "Fused attention on CPUs and GPUs"
    settings = "os", "compiler", "build_type", "arch"
    options = {"cuda": ["AUTO", "ON", "OFF"]}
    default_options = {"cuda": "AUTO"}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "tools/*.py"

    def set_version(self):
        text = (pathlib.Path(self.recipe_folder) / "CMakeLists.txt").read_text(encoding="utf-8")
        self.version = re.search(r"project\(flashcore VERSION ([\d.]+)", text)[1]

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        Apt(self).check(["libfmt-dev", "nlohmann-json3-dev", "libhwy-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.cache_variables.update({"FLASHCORE_LIBRARY_ONLY": "ON", "FLASHCORE_TESTS": "OFF",
                                          "FLASHCORE_CUDA": str(self.options.cuda)})
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package has its own files for CMake: flashcore::flashcore and flashcore::shared.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/flashcore"]
