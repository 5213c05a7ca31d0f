#!/usr/bin/env python3
"""check_code_size.py on objects made by hand."""
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_code_size as tool  # pylint: disable=wrong-import-position

FAMILIES = [{"name": "family", "files": ["kernels/*"], "bytes": 100}]


def entry(kind: int, sm: int, size: int) -> bytes:
    header = struct.pack("<HHIQIIII", kind, 0, 64, size, 0, 0, 0, sm)
    return header.ljust(64, b"\0") + b"x" * size


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", tool.FATBIN_MAGIC, 1, 16, len(body)) + body


def elf_with(name: str, contents: bytes) -> bytes:
    """A 64-bit ELF file of three sections: none, the names, and one with `contents`."""
    names = b"\0.shstrtab\0" + name.encode() + b"\0"
    contents_at = 64 + len(names)
    table_at = contents_at + len(contents)

    def header(name_offset: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name_offset, 1, 0, 0, offset, size, 0, 0, 1, 0)

    start = tool.ELF_MAGIC + b"\x02\x01" + b"\0" * 34 + struct.pack("<Q", table_at)
    start = start.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, 3, 1)
    table = header(0, 0, 0) + header(1, 64, len(names)) + header(11, contents_at, len(contents))
    return start + names + contents + table


class CodeSize(unittest.TestCase):
    def test_programs_of_every_container_are_found_and_other_kinds_are_not(self):
        fatbin = (container(entry(2, 80, 40), entry(1, 80, 24), entry(2, 90, 48)) + b"\0" * 8 +
                  container(entry(2, 80, 16)))
        self.assertEqual(tool.device_programs(fatbin),
                         [("sm_80", 40), ("sm_90", 48), ("sm_80", 16)])

    def test_a_section_is_found_by_its_name(self):
        self.assertEqual(tool.section(elf_with(".nv_fatbin", b"inside"), ".nv_fatbin"), b"inside")
        self.assertEqual(tool.section(elf_with(".other", b"inside"), ".nv_fatbin"), b"")
        self.assertEqual(tool.section(b"not an object", ".nv_fatbin"), b"")

    def test_a_family_is_the_sum_of_its_objects(self):
        with tempfile.TemporaryDirectory() as build:
            base = pathlib.Path(build) / "src/cuda/CMakeFiles/flashcore_cuda.dir"
            (base / "kernels").mkdir(parents=True)
            for file, size in (("kernels/a", 64), ("kernels/b", 40), ("other", 1000)):
                contents = elf_with(".nv_fatbin", container(entry(2, 80, size)))
                (base / f"{file}.cu.o").write_bytes(contents)
            self.assertEqual(dict(tool.sizes(pathlib.Path(build), FAMILIES)),
                             {("family", "sm_80"): 104})


if __name__ == "__main__":
    unittest.main()
