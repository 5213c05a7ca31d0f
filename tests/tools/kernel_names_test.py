#!/usr/bin/env python3
"""kernel_names.py: former names of kernels in what was written earlier."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_names as tool  # noqa: E402
from kernel_folders import folders  # noqa: E402


class KernelNames(unittest.TestCase):
    def test_every_line_of_the_table_is_read(self):
        lines = [line for line in tool.TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("//")]
        self.assertEqual(len(tool.FORMER), len(lines))
        self.assertEqual(tool.FORMER["forward_sm80_fp8"], "forward_sm80_throughput:fp8")
        for now in tool.FORMER.values():
            self.assertEqual(tool.present_name(now), now)

    def test_they_are_replaced_at_the_beginning_of_a_text_and_in_keys(self):
        self.assertEqual(tool.with_present_names({"forward_sm90_64x64": ["forward_sm90_latency early", 1.5, None,
                                                                         "forward_fp8_sm90_three:x", "PyTorch flash"]}),
                         {"forward_sm90_throughput:64x64": ["forward_sm90_latency early", 1.5, None,
                                                            "forward_fp8_sm90:192x64:x", "PyTorch flash"]})
        for text in ("forward_sm90_paged_more", "of forward_sm90_paged", ""):
            self.assertEqual(tool.present_name(text), text)

    def test_no_family_names_a_kernel_by_a_former_name(self):
        for folder in folders():
            for name in folder.kernels:
                self.assertEqual(tool.present_name(name), name)


if __name__ == "__main__":
    unittest.main()
