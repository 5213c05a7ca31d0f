"""tools/make_ladder_page.py on small evidence: what it writes, and that --check notices changes."""
import contextlib
import io
import json
import pathlib
import struct
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fingerprint  # noqa: E402
import make_ladder_page  # noqa: E402

SHAPES = ["(1,8,512,64)", "(1,8,512,64)/causal", "(2,8,2048,64)", "(2,8,2048,64)/causal",
          "(2,8,2048,128)"]


def rung(name, microseconds, print_of, passed=True):
    times = {shape: {"sustained": {"p50_us": microseconds}, "speedup_over_before": None,
                     "speedup_over_unfused": 1.0} for shape in SHAPES} if passed else {}
    return {"name": name, "adds": "something", "prediction": "faster", "input": "f16",
            "min_compute_capability": 80, "fingerprint": print_of,
            "gate": {"passed": passed, "failure": "" if passed else "o[0] is nan",
                     "max_scaled_error": 5e-4,
                     "table": [{"passed": 3, "failed": 0 if passed else 1}],
                     "tails": {"passed": 9, "failed": 0}, "repeats": {"equal": 8, "different": 0}},
            "sanitizers": {"memcheck": {"passed": True}}, "times": times,
            "launches": {"a": [{"registers": 64, "shared_bytes": 2048}]} if passed else {}}


def evidence(rungs):
    return {"schema": "flashcore-evidence", "version": 1, "kind": "ladder",
            "created": "2026-01-02T03:04:05Z",
            "library": {"commit": "0123456789abcdef", "modified": False},
            "device": {"name": "A GPU", "driver": "1.2", "toolkit": "13.0"},
            "shapes": [{"name": name} for name in SHAPES],
            "ceilings": {"idle": {"empty_kernel": {"p50_us": 1.15}, "copy_bytes_a_second": 4.3e12,
                                  "matrix_product": {"f16": {"tflops": 758.4}, "bf16": None}}},
            "peers": {"shapes": {SHAPES[0]: [{"backend": "flash", "max_scaled_error": 4e-4,
                                              "sustained": {"p50_us": 10.2}}]}},
            "rungs": rungs}


def png(text):
    def chunk(kind, body):
        return (struct.pack(">I", len(body)) + kind + body +
                struct.pack(">I", zlib.crc32(kind + body)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes(13)) +
            chunk(b"tEXt", b"evidence\0" + text.encode()) + chunk(b"IEND", b""))


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.source = self.root / "src/cuda/ladder/00_unfused.cu"
        self.source.parent.mkdir(parents=True)
        self.header = self.root / "src/cuda/common.cuh"
        self.header.write_text("// shared\n")
        self.source.write_text('#include "cuda/common.cuh"\n')
        (self.root / "src/cuda/ladder/01_scalar.cu").write_text("// alone\n")
        (self.root / "docs/evidence").mkdir(parents=True)
        (self.root / "docs/images").mkdir()
        markers = "\n".join(f"<!-- generated: {name} -->\n<!-- end: {name} -->"
                            for name in ("where", "times", "goals", "ceilings", "gates", "rungs"))
        self.page.write_text(f"# The ladder\nby hand\n{markers}\n")
        (self.root / "docs/ladder-notes.md").write_text("# Notes\n## 00_unfused\nIt was slow.\n")
        prints = fingerprint.fingerprints(self.root)
        self.data = evidence([rung("00_unfused", 20.5, prints["ladder/00_unfused"]),
                              rung("01_scalar", 2870.0, prints["ladder/01_scalar"])])
        self.write()

    def tearDown(self):
        self.folder.cleanup()

    @property
    def page(self):
        return self.root / "docs/ladder.md"

    def write(self):
        (self.root / "docs/evidence/ladder.json").write_text(json.dumps(self.data))
        (self.root / "docs/images/ladder.png").write_bytes(
            png(make_ladder_page.plot_hash(self.data)))

    def run_tool(self, *arguments):
        before, sys.argv = sys.argv, ["make_ladder_page.py", "--root", str(self.root), *arguments]
        try:
            with contextlib.redirect_stderr(io.StringIO()), \
                    contextlib.redirect_stdout(io.StringIO()):
                return make_ladder_page.main()
        finally:
            sys.argv = before

    def test_it_writes_what_it_then_accepts(self):
        self.assertEqual(self.run_tool("--check"), 1)
        self.assertEqual(self.run_tool("--no-plot"), 0)
        self.assertEqual(self.run_tool("--check"), 0)
        text = self.page.read_text()
        for part in ("by hand", "20.50", "2870", "PyTorch flash", "10.20", "It was slow.",
                     "758 TFLOP/s", "A GPU", "140x, goal 72x: met", "0.50x, goal 1.0x: not met", "3 of 3", "| passed |"):
            self.assertIn(part, text)
        self.assertNotIn("stale", text)

    def test_an_edited_number_is_noticed(self):
        self.run_tool("--no-plot")
        self.page.write_text(self.page.read_text().replace("20.50", "10.50"))
        self.assertEqual(self.run_tool("--check"), 1)

    def test_another_plot_is_noticed(self):
        self.run_tool("--no-plot")
        (self.root / "docs/images/ladder.png").write_bytes(png("0000"))
        self.assertEqual(self.run_tool("--check"), 1)

    def test_a_changed_source_or_header_makes_its_rows_stale(self):
        self.header.write_text("// shared, and changed\n")
        self.assertEqual(self.run_tool("--check"), 1)
        self.run_tool("--no-plot")
        text = self.page.read_text()
        self.assertIn("`00_unfused` (stale)", text)
        self.assertNotIn("`01_scalar` (stale)", text)

    def test_a_failed_rung_has_no_time(self):
        self.data["rungs"][1] = rung("01_scalar", 1.0, "x", passed=False)
        self.write()
        self.run_tool("--no-plot")
        text = self.page.read_text()
        self.assertIn("FAILED", text)
        self.assertIn("not timed: o[0] is nan", text)

    def test_evidence_of_another_schema_is_refused(self):
        for key, value in (("schema", "other"), ("version", 2), ("kind", "bench")):
            changed = dict(self.data, **{key: value})
            (self.root / "docs/evidence/ladder.json").write_text(json.dumps(changed))
            self.assertEqual(self.run_tool("--check"), 1, key)


if __name__ == "__main__":
    unittest.main()
