"""scripts/check_abi.py finds changes of the C interface that break programs, and lets those pass that do not."""
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_abi  # noqa: E402

NAME = "libflashcore.so.0.1"
HEADER = check_abi.HEADER.read_text(encoding="utf-8")
NOT_BROKEN = "abi/flashcore.abi is old"
BROKEN = "Programs that were built before would break"
# What changes in the header, into what, and what is found.
CHANGES = [
    ("FLASHCORE_API size_t flashcore_dtype_size(int32_t dtype);", "", BROKEN),
    ("flashcore_dtype_size(int32_t dtype)", "flashcore_dtype_size(int64_t dtype)", BROKEN),
    ("FLASHCORE_API size_t flashcore_dtype_size", "FLASHCORE_API int16_t flashcore_dtype_size", BROKEN),
    ("  int64_t shape[4];\n  int64_t stride[4];", "  int64_t stride[4];\n  int64_t shape[4];", BROKEN),
    ("  int64_t stride[4];\n} flashcore_tensor;", "  int64_t stride[4];\n  int64_t more;\n} flashcore_tensor;", BROKEN),
    ("  size_t struct_size;\n\n  flashcore_tensor q;", "  size_t struct_size;\n  int64_t more;\n  flashcore_tensor q;", BROKEN),
    ("FLASHCORE_F16 = 1", "FLASHCORE_F16 = 21", BROKEN),
    ("FLASHCORE_I64 = 8 ", "FLASHCORE_LONG = 8 ", BROKEN),
    ("FLASHCORE_I64 = 8 ", "FLASHCORE_I64 = 8, FLASHCORE_MORE = 9 ", NOT_BROKEN),
    ("} flashcore_problem;", "  int64_t more;\n} flashcore_problem;", NOT_BROKEN),
    ("#ifdef __cplusplus\n}", "FLASHCORE_API int32_t flashcore_more(void);\n#ifdef __cplusplus\n}", NOT_BROKEN),
]


class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.known, _ = self.described(HEADER)

    def described(self, header: str, name: str = NAME):
        return check_abi.described(header, name, check_abi.EXPORTS, self.folder)

    def found(self, header: str, name: str = NAME) -> list[str]:
        return check_abi.compare(self.known, self.described(header, name)[0], check_abi.growing(header))

    def test_every_function_and_every_constant_is_described(self):
        functions = set(re.findall(r"^FLASHCORE_API [^;(]*?(\w+)\(", HEADER, re.MULTILINE))
        self.assertGreater(len(functions), 40)
        self.assertEqual({name.partition("@")[0] for name in self.described(HEADER)[1]}, functions)
        constants = set(re.findall(r"^ *(?:enum \{ )?(FLASHCORE_\w+) =", HEADER, re.MULTILINE))
        self.assertGreater(len(constants), 20)
        self.assertEqual([name for name in constants if f"'{name}'" not in self.known], [])

    def test_no_change_is_found_in_the_same_header(self):
        self.assertEqual(self.found(HEADER), [])
        self.assertEqual(self.found(HEADER + "\n/* A comment. */\n"), [])

    def test_each_change_is_found(self):
        for before, after, wanted in CHANGES:
            self.assertEqual(HEADER.count(before), 1, before)
            found = self.found(HEADER.replace(before, after))
            self.assertTrue(found and found[0].startswith(wanted), f"{before}\n{after}\n{found}")

    def test_another_soname_allows_every_change(self):
        before, after, _ = CHANGES[0]
        self.assertTrue(self.found(HEADER.replace(before, after), "libflashcore.so.9")[0].startswith(NOT_BROKEN))


if __name__ == "__main__":
    unittest.main()
