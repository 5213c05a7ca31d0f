#!/usr/bin/env python3
"""wgmma.py: each function names every operand of its instruction once."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import wgmma  # noqa: E402

FUNCTION = re.compile(r"void (wgmma_(ss|rs)_\w+)\(float \(&d\)\[(\d+)\]\[4\].*?asm volatile\((.*?)\);\n\}", re.S)


class Products(unittest.TestCase):
    def test_operands(self):
        functions = FUNCTION.findall(wgmma.text())
        self.assertEqual(len(functions), 31)
        for name, place, count, body in functions:
            with self.subTest(name, count=count):
                strings, outputs, inputs, _ = body.split("\n      : ")
                operands = (outputs + ", " + inputs).split(", ")
                self.assertEqual(outputs.split(", "), [f'"+f"(d[{i}][{e}])' for i in range(int(count)) for e in range(4)])
                self.assertEqual(sorted(map(int, re.findall(r"%(\d+)", strings))), list(range(len(operands))))
                self.assertEqual(inputs.count('"r"(a['), 4 if place == "rs" else 0)
                self.assertIn(f"m64n{8 * int(count)}k", strings)

    def test_modes(self):
        """Where a mode's operand is: A's major before B's, after the scales of both."""
        text = wgmma.text((64,))
        self.assertIn('"%32, %33, p, 1, 1, %35, %36;\\n}"', text)  # ss of 16 bits
        self.assertIn('"{%32,%33,%34,%35}, %36, p, 1, 1, %38;\\n}"', text)  # rs
        self.assertIn('"%32, %33, p, 1, 1;\\n}"', text)  # of 8 bits: there is none
        self.assertIn('"%128, %129, p, 1, 1, 0, %131;\\n}"', wgmma.text((256,)))


if __name__ == "__main__":
    unittest.main()
