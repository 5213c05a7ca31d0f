#!/usr/bin/env python3
"""instances.py: from kernel.json to files and lists."""
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import instances  # noqa: E402

KERNEL = {
    "name": "forward_x", "targets": ["90a"], "budgets": [],
    "instances": {
        "shape": {"threads": "kThreads", "shared_bytes": "kBytes<{config}>"},
        "list": [
            {"name": "{element}_config{config}{masked[0]}", "kernel": "kernel<{config}, {Element}, {masked[1]}>",
             "group": "{type}_all", "over": {"type": ["f16", "bf16"], "config": [0, 3],
                                             "masked": [["", "false"], ["_masked", "true"]]}},
            {"name": "join", "kernel": "join_kernel", "group": "join", "header": "join.cuh", "only": "90a",
             "shape": {"shared_bytes": "0"}},
            {"name": "begin", "kernel": "begin_kernel", "group": "rows", "unit": "rows", "except": "90a",
             "shape": {"shared_bytes": "0"}},
            {"name": "end", "kernel": "end_kernel", "group": "rows", "unit": "rows", "except": "90a",
             "shape": {"shared_bytes": "0"}}]}}


class Instances(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.put(KERNEL)

    def put(self, kernel):
        path = self.root / "src/cuda/forward_x/tile/kernel.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kernel))

    def groups(self, apart=False):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            instances.groups(self.root / "src", self.root / "out", apart)
        return [line.split() for line in told.getvalue().splitlines()]

    def test_groups(self):
        self.assertEqual(self.groups(), [["forward_x", "forward_x/tile/f16_all.cu", "-", "-"],
                                         ["forward_x", "forward_x/tile/bf16_all.cu", "-", "-"],
                                         ["forward_x", "forward_x/tile/join.cu", "90a", "-"],
                                         ["forward_x", "forward_x/tile/rows.cu", "-", "90a"]])
        text = (self.root / "out/forward_x/tile/f16_all.cu").read_text()
        self.assertIn('#include "cuda/forward_x/tile/kernel.cuh"', text)
        self.assertEqual(text.count("launch::describe("), 4)
        self.assertIn("namespace flashcore::cuda::forward_x::tile {", text)
        self.assertIn('"fp16_config3_masked", &kernel<3, Fp16, true>, {.threads = static_cast<unsigned int>(kThreads), '
                      ".shared_bytes = static_cast<unsigned int>(kBytes<3>)}", text)
        self.assertIn('#include "cuda/forward_x/tile/join.cuh"', (self.root / "out/forward_x/tile/join.cu").read_text())

    def test_apart(self):
        files = [file for _, file, *_ in self.groups(apart=True)]
        self.assertEqual(len(files), 8 + 1 + 1)
        self.assertIn("forward_x/tile/bf16_config0.cu", files)
        self.assertIn("forward_x/tile/rows.cu", files)

    def test_unchanged_files_keep_their_time(self):
        self.groups()
        path = self.root / "out/forward_x/tile/rows.cu"
        before = path.stat().st_mtime_ns
        self.groups()
        self.assertEqual(path.stat().st_mtime_ns, before)

    def test_table(self):
        all_of = instances.read(self.root / "src")
        text = instances.table_text(all_of, stubs=False)
        self.assertIn("namespace flashcore::cuda::forward_x::tile { launch::Instance make_begin(); }", text)
        self.assertEqual(text.count("cuda::forward_x::tile::make_"), 11)
        self.assertIn('if (family == "forward_x") return list_of_forward_x();', text)
        stubs = instances.table_text(all_of, stubs=True)
        self.assertEqual(stubs.count("stub<"), 11 + 0)
        self.assertNotIn("make_", stubs)

    def test_what_was_not_compiled_is_left_out(self):
        self.groups()
        subprocess.run([sys.executable, ROOT / "tools/instances.py", "table", self.root / "out", "--source",
                        self.root / "src", "--without", "forward_x/tile/rows.cu"], check=True)
        text = (self.root / "out/cuda/launch/instances.cpp").read_text()
        self.assertNotIn("make_begin", text)
        self.assertIn("make_join", text)

    def test_names_of_this_repository_say_which_kernel(self):
        seen = 0
        for family, all_of in instances.read(ROOT / "src").items():
            for one in all_of:
                config = re.search(r"config(\d+)", one.name)
                element = re.search(r"(?:^|_)(fp16|bf16|fp32)(?:_|$)", one.name)
                with self.subTest(family=family, instance=one.name):
                    if config:
                        self.assertRegex(one.kernel, rf"<{config[1]}[,>]")
                    if element and "<" in one.kernel:
                        self.assertRegex(one.kernel, rf"\b({element[1]}|{element[1].capitalize()})\b")
                seen += config is not None
        self.assertGreater(seen, 200)

    def refused(self, change):
        kernel = json.loads(json.dumps(KERNEL))
        change(kernel["instances"]["list"])
        self.put(kernel)
        with self.assertRaises(SystemExit) as refusal:
            instances.read(self.root / "src")
        return str(refusal.exception)

    def test_mistakes(self):
        self.assertIn("'groop' is unknown", self.refused(lambda rows: rows[0].update(groop="a")))
        self.assertIn("'thread' is unknown", self.refused(lambda rows: rows[1]["shape"].update(thread="1")))
        self.assertIn("'begin' is there twice", self.refused(lambda rows: rows[3].update(name="begin")))
        self.assertIn("'kernel' is missing", self.refused(lambda rows: rows[1].pop("kernel")))
        self.assertIn("'confg' is not in \"over\"", self.refused(lambda rows: rows[0].update(name="{confg}")))


if __name__ == "__main__":
    unittest.main()
