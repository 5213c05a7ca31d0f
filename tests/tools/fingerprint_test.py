#!/usr/bin/env python3
"""fingerprint.py: which changes alter the fingerprint of a CPU kernel's sources."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fingerprint as tool  # noqa: E402

SOURCE = """#include "cpu/sum.hpp"
#include <cmath>
// Adds.
int add(int a, int b) { return a + b; }  /* both */
const char* text = "// no  comment";
"""


class Fingerprints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.src = pathlib.Path(self.folder.name) / "src"
        self.write("cpu/sum.hpp", '#include "problem/size.hpp"\nint sum();\n')
        self.write("cpu/sum.cpp", SOURCE)
        self.write("cpu/reference.cpp", "double judge();\n")
        self.write("cpu/simd.cmake", '# flags\nset_source_files_properties(a.cpp "-O3")\n')
        self.write("problem/size.hpp", "using Size = long;\n")
        self.before = self.prints()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def prints(self):
        return tool.fingerprints(self.src.parent)

    def test_kernels_have_their_own(self):
        self.assertEqual(list(self.before), ["cpu_simd", "reference", "naive"])
        self.assertRegex(self.before["cpu_simd"], "^source [0-9a-f]{16}$")
        self.assertNotEqual(self.before["cpu_simd"], self.before["reference"])

    def test_comments_space_and_places_are_no_matter(self):
        self.write("cpu/sum.cpp", SOURCE.replace("// Adds.", "// Adds\n// two.").replace(
            " { return a + b; }", "\n{\n  return a+b;\n}").replace("both", "all *"))
        self.write("cpu/simd.cmake", 'set_source_files_properties(\n  b.cpp "-O3")\n')
        self.assertEqual(self.before, self.prints())
        (self.src / "problem/size.hpp").rename(self.src / "cpu/extent.hpp")
        self.write("cpu/sum.hpp", 'int sum();\n#include "cpu/extent.hpp"\n')
        self.assertEqual(self.before, self.prints())

    def test_anything_else_changes_that_of_its_kernel_alone(self):
        for name, text in (("cpu/sum.cpp", SOURCE.replace("a + b", "a - b")),
                           ("cpu/sum.cpp", SOURCE.replace("//  no", "// no").replace("no  c", "no c")),
                           ("cpu/sum.cpp", SOURCE.replace("int a", "inta")),
                           ("cpu/sum.cpp", SOURCE.replace("<cmath>", "<cstdlib>")),
                           ("problem/size.hpp", "using Size = int;\n"),
                           ("cpu/simd.cmake", 'set_source_files_properties(a.cpp "-O2")\n')):
            good = (self.src / name).read_text()
            self.write(name, text)
            after = self.prints()
            self.assertNotEqual(self.before["cpu_simd"], after["cpu_simd"], text)
            self.assertEqual(self.before["reference"], after["reference"], text)
            self.write(name, good)
        self.assertEqual(self.before, self.prints())

    def test_tables_go_by_a_kernels_own_code_and_device_code(self):
        self.write("cuda/one/fast/kernel.json", '{"name": "one", "instances": {"list": [{"namespace": "one::other"}]}}')
        self.write("cuda/one/fast/plan.cpp",
                   '#include "problem/size.hpp"\n#include "cuda/tile/tile.hpp"\nint plan();\n')
        self.write("cuda/one/other/plan.hpp", "int other();\n")
        self.write("cuda/tile/tile.hpp", "int tile();\n")

        def prints():
            return (tool.cuda_fingerprints(self.src.parent) |
                    tool.fingerprints(self.src.parent, tool.CPU_ROOMS))

        before = prints()
        self.write("problem/size.hpp", "using Size = int;\n")
        self.assertEqual(before, prints())
        self.write("cuda/tile/tile.hpp", "int tile(int);\n")
        changed = prints()["one"]
        self.assertNotEqual(before["one"], changed)
        self.write("cuda/one/other/plan.hpp", "int other(int);\n")
        self.assertNotEqual(changed, prints()["one"])
        self.assertEqual(before["cpu_simd"], prints()["cpu_simd"])


if __name__ == "__main__":
    unittest.main()
