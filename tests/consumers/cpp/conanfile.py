"""The program of this folder, with the library from Conan."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    settings = "os", "compiler", "build_type", "arch"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self, build_folder=os.environ["FLASHCORE_CONAN_BUILD"])

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        for name in ("consumer_static", "consumer_shared"):
            self.run(os.path.join(self.build_folder, name))
