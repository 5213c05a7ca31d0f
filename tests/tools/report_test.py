"""tools/report.py on small evidence: its output, and that --check detects every change."""
import contextlib
import html.parser
import io
import json
import pathlib
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))
import fixtures  # noqa: E402
import report  # noqa: E402
from reporting import pictures, python, text  # noqa: E402
from reporting.compact import whole  # noqa: E402
from reporting.evidence import Evidence, Failure, check_evidence  # noqa: E402


def markers(names):
    return "\n".join(f"<!-- generated: {name} -->\n<!-- end: {name} -->" for name in names)


class Tree(unittest.TestCase):
    """A tree with a build of two rungs and a production kernel, and fixtures as evidence."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for folder in ("docs/evidence", "docs/images", "build"):
            (self.root / folder).mkdir(parents=True)
        self.code = {"nvcc": "13.0.88", "functions": {"sm_80": {}, "sm_90": {}}}
        for number, name in enumerate(("00_unfused", "01_scalar", "forward_sm80_throughput")):
            self.code["functions"]["sm_80"][name] = "0" * 16
            self.code["functions"]["sm_90"] |= {name: f"{number:016x}", f"join {name}": f"a{number:015x}"}
        self.write_code()
        for page in report.marked_pages(REPOSITORY):
            parts = text.MARKER.findall(page.read_text(encoding="utf-8"))
            (self.root / page.relative_to(REPOSITORY)).write_text(f"# A page\nby hand\n{markers(parts)}\n")
        self.ladder = fixtures.ladder([
            fixtures.rung("00_unfused", 20.5, self.print_of("00_unfused")),
            fixtures.rung("01_scalar", 2870.0, self.print_of("01_scalar"))])
        self.bench = fixtures.standard(self.print_of("forward_sm80_throughput"))
        self.verify = fixtures.verify("forward_sm80_throughput", self.print_of("forward_sm80_throughput"))
        self.write()

    def tearDown(self):
        self.folder.cleanup()

    def print_of(self, kernel):
        """The fingerprint from a build with this machine code on a GPU of compute capability 9.0,
        for launches of all functions that are named after the kernel."""
        digests = [digest for name, digest in self.code["functions"]["sm_90"].items() if name.endswith(kernel)]
        return " ".join([f"nvcc {self.code['nvcc']} sm_90", *sorted(digests)])

    def write_code(self):
        (self.root / "build/machine_code.json").write_text(json.dumps(self.code))

    def change(self, function, target="sm_90"):
        self.code["functions"][target][function] = "f" * 16
        self.write_code()

    def write(self):
        for name, evidence in (("ladder", self.ladder), ("bench", self.bench),
                               ("verify-forward_sm80_throughput", self.verify)):
            self.put(name, evidence)
        for name, shown in pictures.hashes(Evidence(self.root)).items():
            (self.root / "docs/images" / name).write_text(fixtures.picture(shown))

    def run_tool(self, *arguments):
        before, sys.argv = sys.argv, ["report.py", "--root", str(self.root), *arguments]
        self.said = io.StringIO()
        try:
            with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(self.said):
                return report.main()
        finally:
            sys.argv = before

    def text(self, name):
        return (self.root / name).read_text()

    def put(self, name, evidence):
        (self.root / f"docs/evidence/{name}.json").write_text(json.dumps(evidence))

    def has(self, page, *parts):
        for part in parts:
            self.assertIn(part, self.text(page))

    def shown(self, page, *parts):
        """Writes the pages; one has these parts."""
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        self.has(page, *parts)

    def page(self):
        """Every measured point, as one page."""
        self.assertEqual(self.run_tool("--page", str(self.root / "page.html")), 0)
        return self.text("page.html")


class Pages(Tree):
    def test_it_writes_what_it_then_accepts(self):
        self.assertEqual(self.run_tool("--check"), 1)
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        self.assertEqual(self.run_tool("--check"), 0, self.said.getvalue())
        self.has("docs/ladder.md", "by hand", "20.50", "2870", "PyTorch flash", "10.20",
                 "| something | faster | 20.50 us, - |", "758 TFLOP/s", "A GPU", "140x, goal 72x: met",
                 "0.50x its speed, goal 1.0x: not met", "3 of 3", "| passed |")
        self.assertNotIn("stale", self.text("docs/ladder.md"))
        self.has("docs/results.md", "`forward_sm80_throughput`", "PyTorch flash (FA2)", "128 causal", "(0.70x)",
                 "b16/8k/hkv8")
        self.has("docs/performance.md", "680 TFLOP/s", "copy 4.30 TB/s")
        self.has("docs/forward-sm80.md", "(least, most; cases) | sweep | five |",
                 "| PyTorch flash (FA2) | 1.20 (1.20, 1.20; ",
                 "| the fastest of PyTorch's backends | 0.70 (0.70, 0.70; ",
                 "| head_dim, TFLOP/s (over the fastest peer) | 512 | 1k |", "(0.70x) |")
        self.has("README.md", "| 512 | 2k | 8k | 16k |", f"{len(self.bench['cases'])} cases, sustained.")

    def test_it_shows_the_pictures_that_there_are(self):
        self.shown("README.md", 'src="docs/images/sweep.svg"')
        self.assertIn('src="images/latency.svg"', self.text("docs/performance.md"))
        self.bench["cases"] = [one for one in self.bench["cases"] if one["suite"] == "decode"]
        self.write()
        self.run_tool("--no-pictures")
        self.assertNotIn("images/sweep", self.text("README.md"))
        # A picture without data is an error, too.
        self.assertEqual(self.run_tool("--check"), 1)
        self.assertIn("docs/images/sweep.svg", self.said.getvalue())

    def test_fp8_beside_bf16(self):
        self.shown("docs/forward-fp8.md", "Not measured yet.")
        wide = "forward_sm80_throughput", 100.0, "flashcore", self.print_of("forward_sm80_throughput")
        narrow = "forward_fp8_sm90", 80.0, "flashcore", "source 0123456789abcdef"
        shape = 8, 32, 2048, 64, False
        file = fixtures.bench([fixtures.case("fp8", "d64/s2048/full/bf16", *shape, [wide]),
                               fixtures.case("fp8", "d64/s2048/full/f8e4m3", *shape, [narrow], "f8e4m3"),
                               fixtures.case("fp8", "d64/s2048/full/f8e4m3, V^T", *shape,
                                             [(narrow[0], 50.0, *narrow[2:])], "f8e4m3"),
                               # An interrupted run has only one of a pair.
                               fixtures.case("fp8", "d64/s4096/full/bf16", *shape, [wide])])
        self.put("bench-fp8", file)
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        rate = 4 * 8 * 32 * 2048 * 2048 * 64 / 100 * 1e-6
        self.has("docs/forward-fp8.md",
                 f"| d64/s2048/full | {rate:.0f} | {rate * 1.25:.0f} | {rate * 2:.0f} | 1.25 | 2.00 |",
                 f"| d64/s4096/full | {rate:.0f} | - | - | - | - |")

    def test_fp8_kernels_and_cudnn_have_a_column_each(self):
        ours = "forward_fp8_sm90", 80.0, "flashcore", "source 0123456789abcdef"
        peer = "cudnn_direct", 100.0, "peer"
        shape = 8, 32, 2048, 64, False
        kernels = fixtures.bench([fixtures.case("fp8", "d64/s2048/bf16", *shape, []),
                                  fixtures.case("fp8", "d64/s2048/f8e4m3", *shape, [ours], "f8e4m3")])
        peers = fixtures.bench([fixtures.case("file", "d64/s2048/O f8e4m3", *shape, [ours, peer], "f8e4m3"),
                                fixtures.case("file", "d64/s4096/O f8e4m3", *shape, [ours], "f8e4m3")])
        wide = fixtures.bench([fixtures.case("file", "d64/s1024/bf16", *shape, [peer]),
                               fixtures.case("file", "d64/s1024/f8e4m3", *shape, [ours], "f8e4m3"),
                               fixtures.case("file", "d64/s1024/causal/f8e4m3", *shape, [ours], "f8e4m3")])
        for name, file in (("kernels", kernels), ("peers", peers), ("wide", wide)):
            self.put(f"bench-fp8-{name}", file)
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        rate = 4 * 8 * 32 * 2048 * 2048 * 64 / 100 * 1e-6
        self.has("docs/forward-fp8.md", f"| d64/s2048 | {rate * 1.25:.0f} |\n",
                 f"| d64/s2048 | {rate * 1.25:.0f} | {rate:.0f} |\n| d64/s4096 | {rate * 1.25:.0f} | - |",
                 f"| d64/s1024 | {rate * 1.25:.0f} | {rate:.0f} |\n"
                 f"| d64/s1024/causal | {rate * 1.25:.0f} | - |", "| `forward_fp8_sm90` (stale) | cuDNN from C++ |")

    def write_modes(self):
        """Accuracy of a bf16 kernel and two fp8 kernels, and the speed of two of them at one D."""
        self.code["functions"]["sm_90"]["forward_fp8_sm90"] = "c" * 16
        self.write_code()
        wide = "forward_sm80_throughput", self.print_of("forward_sm80_throughput")
        narrow = "forward_fp8_sm90", self.print_of("forward_fp8_sm90")
        accuracy = fixtures.fp8_accuracy([(wide[0], "bf16", wide[1]), (narrow[0], "f8e4m3", narrow[1]),
                                          ("01_scalar", "f8e4m3", self.print_of("01_scalar"))])
        speed = fixtures.bench([
            fixtures.case("fp8_modes", f"d128/s2048/{dtype}", 8, 16, 2048, 128, False,
                          [(name, us, "flashcore", print_of)], dtype)
            for dtype, us, (name, print_of) in (("bf16", 200.0, wide), ("f8e4m3", 100.0, narrow))])
        for name, file in (("fp8-accuracy", accuracy), ("bench-fp8-modes", speed)):
            self.put(name, file)

    def test_accuracy_stands_beside_speed(self):
        self.write_modes()
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        page = self.text("docs/forward-fp8.md")
        rate = 4 * 8 * 16 * 2048 * 2048 * 128 * 1e-6
        for part in ('<img alt="Relative error of O against TFLOP/s',
                     "| relative error of O, D 128 | TFLOP/s | causal | normal | sink |",
                     "| e4m3 inputs, before any kernel | - | - | 1.0e-04 | 2.0e-04 |",
                     f"| `forward_sm80_throughput` | {rate / 200:.0f} | - | 1.1e-03 | 1.2e-03 |",
                     f"| `forward_fp8_sm90` | {rate / 100:.0f} | - | 2.1e-03 | 2.2e-03 |",
                     "| `01_scalar` | - | - | 3.1e-03 | 3.2e-03 |", "relative error of O, D 64",
                     "| largest error of LSE, D 128 | normal | sink |"):
            self.assertIn(part, page)
        self.assertIn("| `forward_fp8_sm90`, O | 2.1e-03 | 2.2e-03 |", self.text("docs/accuracy.md"))
        self.assertNotIn("(stale)", page)
        # The picture is missing, then shows something else.
        for _ in range(2):
            self.assertEqual(self.run_tool("--check"), 1)
            self.assertIn("docs/images/fp8.svg", self.said.getvalue())
            (self.root / "docs/images/fp8.svg").write_text(fixtures.picture("0" * 16))
        self.change("forward_fp8_sm90")
        self.shown("docs/forward-fp8.md", "| `forward_fp8_sm90` (stale) |")

    def test_a_picture_of_accuracy_has_a_point_a_kernel_that_was_timed(self):
        self.write_modes()
        (panels, *about), _ = pictures.drawings(Evidence(self.root))["fp8"]
        self.assertEqual(about, ["A GPU", "S 2048"])
        self.assertEqual([panel[:2] for panel in panels], [("normal", 1e-4), ("sink", 2e-4)])
        self.assertEqual([mode for mode, *_ in panels[0][2]],
                         [("forward_sm80_throughput", "bf16"), ("forward_fp8_sm90", "f8e4m3")])
        (self.root / "docs/evidence/bench-fp8-modes.json").unlink()
        self.assertNotIn("fp8", pictures.drawings(Evidence(self.root)))

    def test_what_the_largest_values_cost(self):
        kernel = self.print_of("forward_sm80_throughput")
        cases = [fixtures.case("amax", name, 1, 16, 2048, 128, False,
                               [("forward_sm80_throughput", us, "flashcore", kernel)], "f8e4m3")
                 for name, us in (("d128/2k/O bf16", 50.0), ("d128/2k/O bf16/amax", 51.0),
                                  ("d128/2k/O f8e4m3", 40.0), ("d128/2k/O f8e4m3/amax", 40.2),
                                  ("d128/16k/O bf16", 400.0))]  # interrupted
        self.put("bench-fp8-amax", fixtures.bench(cases))
        self.shown("docs/forward-fp8.md", "| d128/2k/O bf16 | `forward_sm80_throughput` | 50.00 | 51.00 | +2.0% |",
                   "| 40.00 | 40.20 | +0.5% |", "| 400 | - | - |", "+1.3% in the median, +0.5% to +2.0%")

    def test_the_backward_pass_is_shown_where_it_was_measured(self):
        self.run_tool("--no-pictures")
        self.assertNotIn("backward pass", self.text("docs/results.md"))
        self.code["functions"]["sm_90"]["backward_sm80"] = "b" * 16
        self.write_code()
        kernel = "backward_sm80", 100.0, "flashcore", self.print_of("backward_sm80")
        peers = ("flash", 150.0, "peer"), ("fa4_deterministic", 80.0, "peer")
        file = fixtures.bench([
            fixtures.case("sweep", "d64/s2048", 8, 32, 2048, 64, False, [kernel, *peers]),
            fixtures.case("backward", "packed/causal", 8, 16, 2048, 128, True, [kernel])])
        path = self.root / "docs/evidence/backward-gpu.json"
        path.write_text(json.dumps(file | {"pass": "backward", "deterministic": True}))
        self.shown("docs/results.md", "## The backward pass\n\n### Deterministic\n", "speedup: geometric mean",
                   "| 64 full | `backward_sm80` |", "| FlashAttention-4, deterministic | 0.80 (0.80, 0.80; 1) |",
                   "| packed/causal | bf16 | 100 |")
        self.assertNotIn("With atomic sums", self.text("docs/results.md"))
        self.assertNotIn("(stale)", self.text("docs/results.md"))
        self.change("backward_sm80")
        self.shown("docs/results.md", "| 64 full | `backward_sm80` (stale) |")

    def test_the_backward_pass_beside_flash_attention_4_by_head_dimension(self):
        self.code["functions"]["sm_90"]["backward_sm80"] = "b" * 16
        self.write_code()
        kernel = "backward_sm80", 100.0, "flashcore", self.print_of("backward_sm80")
        for file, peer, times in (("backward-gpu-any-order", "fa4", (90.0, 160.0)),
                                  ("backward-gpu", "fa4_deterministic", (200.0, 50.0))):
            evidence = fixtures.bench([
                fixtures.case("sweep", f"d{dim}/s2048", 8, 32, 2048, dim, False,
                              [kernel, (peer, time, "peer")])
                for dim, time in zip((64, 128), times)])
            path = self.root / f"docs/evidence/{file}.json"
            path.write_text(json.dumps(evidence | {"pass": "backward"}))
        self.shown("docs/backward.md", "In any order: ", "The same bits: ",
                   "| all | 1.20 (0.90 to 1.60); 1 of 2 | 1.00 (0.50 to 2.00); 1 of 2 |",
                   "| 64 | 0.90 (0.90 to 0.90); 1 of 1 | 2.00 (2.00 to 2.00); 0 of 1 |")
        self.assertNotIn("(stale)", self.text("docs/backward.md"))
        self.change("backward_sm80")
        self.shown("docs/backward.md", "the same bits (stale)")

    def test_the_front_page_says_where_others_are_ahead(self):
        self.shown("README.md", "Not measured yet.")
        for number, name in enumerate(("backward_sm80", "backward_sm90", "decode_sm90")):
            self.code["functions"]["sm_90"][name] = f"b{number:015x}"
        self.write_code()

        def ours(name, us):
            return name, us, "flashcore", self.print_of(name)

        def trained(name, us, kernel):
            return fixtures.case("backward", name, 4, 16, 4096, 128, False, [ours(kernel, us)])

        def decoded(name, us, queries=1):
            one = fixtures.case("decode", name, 16, 32, queries, 128, False,
                                [ours("decode_sm90", us), ("cudnn", 100.0, "peer")], keys=8192)
            return one | {"heads_kv": 8}

        backward = fixtures.bench([trained("4k", 100.0, "backward_sm90"), trained("4k/sinks", 110.0, "backward_sm90"),
                                   trained("4k/mask", 480.0, "backward_sm80"),
                                   trained("4k/bias bf16", 600.0, "backward_sm80")])
        backward |= {"pass": "backward", "deterministic": True}

        def page(*cases):
            for name, file in (("backward-options", backward), ("bench-serving", fixtures.bench(list(cases)))):
                self.put(name, file)
            self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
            return " ".join(self.text("README.md").split())

        text = page(decoded("b16", 109.0), decoded("b64", 101.0), decoded("q2", 200.0, queries=2))
        self.assertIn("- **Training with mask or bias**", text)
        self.assertIn("take 4.8 to 6.0 times as long as without them on A GPU ([table]", text)
        self.assertIn("it takes 1.01 to 1.09 times cuDNN's time (1.09: 16 sequences of 8k keys, 32 heads over 8;", text)
        before = decoded("b16", 109.0)
        self.change("decode_sm90")
        text = page(before)  # no figures of code that has changed
        self.assertIn("- **Decode of one query**", text)
        self.assertNotIn("1.09", text)
        # Without a build nobody knows what has changed: one sentence without figures, one with them, both match.
        (self.root / "build/machine_code.json").unlink()
        self.assertEqual(self.run_tool("--check"), 0, self.said.getvalue())
        self.assertEqual(page(before), text)
        (self.root / "README.md").write_text(self.text("README.md").replace("where cuDNN has", "where it has"))
        self.assertEqual(self.run_tool("--check"), 1)
        self.write_code()
        self.assertNotIn("Decode of one query", page(decoded("b16", 99.0)))  # nobody is ahead

    def test_idle_times_stand_beside_the_sustained_ones(self):
        self.shown("docs/results.md", "TFLOP/s, sustained / idle")

    def test_small_grids_are_tables_with_stale_marks(self):
        (self.root / "docs/small.md").write_text(
            markers(["small eager", "small eager where", "small grid ahead"]))
        grid = fixtures.small_grid("forward_sm80_throughput", self.print_of("forward_sm80_throughput"))
        for name in ("eager", "grid"):
            self.put(f"small-{name}-h200", grid)
        self.shown("docs/small.md", "| `forward_sm80_throughput` | `forward_sm80_throughput`, early |",
                   "| 8, 512, 64, causal | 4.00 / 5.00 | - |", "| f16 | 2 | 1.58 | 1.25 | 2.00 | 0 |",
                   "a fixture's timing")
        self.assertIn("forward_sm80_throughput, early", self.page())
        self.change("forward_sm80_throughput")
        self.shown("docs/small.md", "`forward_sm80_throughput` (stale)")

    def test_small_grids_of_bench_are_the_same_tables(self):
        (self.root / "docs/small.md").write_text(
            markers(["small eager", "small eager where", "small grid ahead"]))
        kernel = "forward_sm80_throughput"

        def grid(us, rows):
            one = fixtures.case("small_grid", "8,512/512,64", 1, 8, 512, 64, False,
                                [(kernel, us, "flashcore", self.print_of(kernel)), *rows])
            one["rows"][0] |= {"default": True, "host_us": us + 1}
            return json.dumps(self.bench | {"cases": [one]})

        for name, us, peers in (("grid", 4.0, [("flash", 6.0, "peer", "")]), ("eager", 4.0, []), ("eager-early", 3.0, [])):
            (self.root / f"docs/evidence/small-{name}-h200.json").write_text(grid(us, peers))
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        for part in (f"| `{kernel}` | `{kernel}`, early |",
                     "| 8, 512, 64, bf16 | 4.00 / 5.00 | 3.00 / 4.00 |",
                     "| bf16 | 1 | 1.50 | 1.50 | 1.50 | 0 |"):
            self.assertIn(part, self.text("docs/small.md"))

    def test_packed_batches_stand_beside_dense_ones(self):
        self.shown("docs/results.md", "<!-- generated: packed -->\nNot measured yet.\n")
        kernel = "forward_sm80_throughput"
        packed = fixtures.packed(kernel, self.print_of(kernel))
        path = self.root / "docs/evidence/packed-h200.json"
        path.write_text(json.dumps(packed))
        self.shown("docs/results.md", f"| 4 x 100 | 64 | `{kernel}` | 100 | 100 | 100.0% | 103 | 97.1% | 97%, met |",
                   f"| 4 x 100, causal | 64 | `{kernel}` | 100 | 100 | 100.0% | 104 | 96.2% | 97%, not met |",
                   "| 100 | 206 | 50.0% | 103 | 100.0% | 95%, not met |", "32 heads, bf16; a fixture.")
        self.assertNotIn("cut short: some rows", self.text("docs/results.md"))
        self.assertEqual(self.run_tool("--check"), 0)
        self.change(kernel)
        self.assertEqual(self.run_tool("--check"), 1)
        self.shown("docs/results.md", f"| 4 x 100 | 64 | `{kernel}` (stale) |")
        path.write_text(json.dumps(packed | {"complete": False, "rows": packed["rows"][:1]}))
        self.shown("docs/results.md", "cut short: some rows are missing")
        path.write_text(json.dumps(packed | {"heads": 0}))
        self.assertEqual(self.run_tool("--no-pictures"), 1)
        self.assertIn("packed-h200.json: heads: is 0, wanted minimum 1", self.said.getvalue())

    def test_features_have_a_table_a_kernel(self):
        self.bench["cases"] += [
            fixtures.case("features", f"d64/{name}", 4, 32, 4096, 64, False,
                          [("forward_sm80_throughput", us, "flashcore", self.print_of("forward_sm80_throughput"))])
            for name, us in (("plain", 1000.0), ("softcap", 2000.0))]
        self.write()
        self.shown("docs/results.md", "| head_dim, TFLOP/s | plain | softcap |", "| 64 | 550 | 275 |")

    def test_a_cpu_has_a_table_of_its_own(self):
        cases = [fixtures.case("cpu", "(1,8,512,64)/f32", 1, 8, 512, 64, False,
                               [("cpu_simd", 1500.0), ("openblas", 3000.0, "peer")], "f32")]
        evidence = fixtures.bench(cases)
        self.put("bench-cpu", evidence)
        self.shown("docs/results.md", "| (1,8,512,64)/f32 | 1.50 (358) | 3.00 (179) |")

    def test_the_goals_of_a_cpu_are_cases_of_bench(self):
        def case(suite, name, us, dtype="f32", sizes=(1, 8, 512, 64), peers=()):
            one = fixtures.case(suite, name, *sizes, False, [("cpu_simd", us, "flashcore", "x"), *peers], dtype)
            one["rows"][0]["workspace_bytes"] = 1 << 20
            return one

        unfused = [("openblas", 150.0, "peer"), ("openblas_by_operator", 300.0, "peer")]
        evidence = fixtures.bench([
            case("cpu_peak", "(2, 8, 2048, 128) f32", 100.0, peers=unfused),
            case("cpu_dtypes", "(1, 8, 2048, 128) f32", 100.0),
            case("cpu_dtypes", "(1, 8, 2048, 128) bf16", 50.0, "bf16"),
            case("cpu_seqlens", "(1, 4, 512, 64) f32", 1000.0, sizes=(1, 4, 500, 64)),
            case("cpu_heads", "(1, 4, 1024, 64) f32", 4000.0, sizes=(1, 4, 1024, 64)),
            case("cpu_others", "(2, 8, 2048, 128) f32 causal", 9000.0)])
        evidence["device"] = {"name": "A processor", "kind": "cpu", "threads": 2}
        evidence["ceilings"]["sustained"]["matrix_product"]["f32"] = {"tflops": 10.0}
        (self.root / "docs/evidence/cpu-a.json").write_text(json.dumps(evidence))
        self.assertEqual(self.run_tool("--no-pictures"), 0, self.said.getvalue())
        for part in ("`docs/evidence/cpu-a.json`: A processor", "A processor, 2 threads |",
                     "share of the FMA peak (goal 60%) | 5369 GFLOP/s, 54% |",
                     "fp8 over fp32, time, (1,8,2048,128) | 0.50 |",
                     "D 64 and 128 (goal 3) | 3.0 times |", "head by head, time, D 64 and 128 | 1.5 times |",
                     "| 1.000 (500) |", "| 1.000 |", "| 1.0 to 1.0 MiB |", "causal, fp32 | 9.00 ms |"):
            self.assertIn(part, self.text("docs/cpu.md"))

    def test_decode_on_a_cpu_has_its_share_of_the_read_rate(self):
        pages = fixtures.case("decode", "b4/page16", 4, 8, 1, 128, False,
                              [("cpu_simd", 2000.0, "flashcore", "x")], "bf16", 8192)
        pages["bytes"] = 8e7
        slow = fixtures.case("decode", "b4", 4, 8, 1, 128, False, [], "f32", 8192)
        evidence = fixtures.bench([pages, slow])
        evidence["device"] = {"name": "A processor", "kind": "cpu", "threads": 2}
        evidence["ceilings"]["sustained"]["read_bytes_per_second"] = 5e10
        self.put("bench-cpu-decode-a", evidence)
        self.shown("docs/cpu.md", "All threads together read 50.0 GB/s.", "| b4/page16 | 2.00 | 40.0 | 80% |",
                   "| b4 | - | - | - |")

    def test_it_says_what_was_verified(self):
        self.run_tool("--no-pictures")
        page = self.text("docs/verification.md")
        errors = "(5.0e-04, 3.0e-04, 1.0e-06)"
        for part in (f"| `forward_sm80_throughput` | 1 of 1 {errors} | 20 of 20 {errors} | 40 of 40, seeds from 7",
                     "2 of 2 clean", "docs/evidence/verify-forward_sm80_throughput.json"):
            self.assertIn(part, page)

    def test_evidence_from_before_hard_scores_has_none(self):
        del self.verify["scores"]
        self.write()
        self.shown("docs/verification.md", "1.0e-06) | - | 40 of 40")

    def test_what_failed_is_not_hidden(self):
        self.verify = fixtures.verify("forward_sm80_throughput", "other sources", failed=3)
        self.write()
        self.shown("docs/verification.md", "`forward_sm80_throughput` (stale)", "17 of 20", "37 of 40",
                   "not clean: racecheck (did not end)")

    def test_the_python_package_has_its_tables(self):
        package = self.root / "python/flashcore"
        package.mkdir(parents=True)
        (package / "a.py").write_text("A = 1\n")
        now = python.fingerprint(package)
        self.assertRegex(now, "^source [0-9a-f]{16}$")
        for name, evidence in (("call", fixtures.python_call(now)),
                               ("torch", fixtures.python_tests(now, complete=False))):
            self.put(f"python-{name}", evidence)
        self.shown("docs/python.md", "| us per call, fp16 | (1,8,512,64) | (1,8,512,64)/causal |",
                   "| `flashcore.attention` | 12.50 | 13.25 |", "| `torch sdpa` | 16.50 | 17.25 |",
                   "Parts of the smallest case, us: output 1.50, launch 4.25.",
                   "[python-torch](evidence/python-torch.json) | 7 passed, 1 failed, 2 skipped, "
                   "not run to the end | torch |")
        (package / "a.py").write_text("# A comment\n\nA = 1  # and one more\n")
        self.assertEqual(python.fingerprint(package), now)
        (package / "a.py").write_text("A = 2\n")
        self.shown("docs/python.md", "| `flashcore.attention` (stale) |", "| `torch sdpa` |",
                   "evidence/python-torch.json) (stale) |")

    def test_without_evidence_the_pages_say_so(self):
        (self.root / "docs/evidence/bench.json").unlink()
        self.shown("README.md", "Not measured yet.")
        self.assertIn("Not measured yet.", self.text("docs/forward-sm80.md"))

    def test_a_shorter_run_shows_what_it_has(self):
        self.bench["cases"] = [one for one in self.bench["cases"] if one["suite"] == "five"]
        self.bench["complete"] = False
        self.write()
        self.shown("README.md", "cut short", "| us per call | (1,8,512,64) |")
        self.assertIn("Not in this run.", self.text("docs/results.md"))

    def test_an_edited_number_is_noticed(self):
        self.run_tool("--no-pictures")
        for name, before in (("docs/ladder.md", "20.50"), ("docs/results.md", "128 causal")):
            path = self.root / name
            good = path.read_text()
            path.write_text(good.replace(before, "10.50"))
            self.assertEqual(self.run_tool("--check"), 1, name)
            self.assertIn(name, self.said.getvalue())
            path.write_text(good)
        self.assertEqual(self.run_tool("--check"), 0)

    def test_another_picture_is_noticed(self):
        self.run_tool("--no-pictures")
        for content in (fixtures.picture("0" * 16).encode(), b"not a picture \xff"):
            (self.root / "docs/images/sweep.svg").write_bytes(content)
            self.assertEqual(self.run_tool("--check"), 1)

    def test_changed_machine_code_makes_its_kernels_rows_stale(self):
        self.run_tool("--no-pictures")
        self.change("00_unfused", "sm_80")  # not the measured target
        self.assertEqual(self.run_tool("--check"), 0)
        self.change("00_unfused")
        self.assertEqual(self.run_tool("--check"), 1)
        self.run_tool("--no-pictures")
        self.assertEqual(self.run_tool("--check"), 0)
        text = self.text("docs/ladder.md")
        self.assertIn("`00_unfused` (stale)", text)
        self.assertNotIn("`01_scalar` (stale)", text)
        self.assertNotIn(" (stale)", self.text("docs/results.md"))
        self.change("forward_sm80_throughput")
        self.shown("docs/results.md", "`forward_sm80_throughput` (stale)")
        self.assertIn("forward_sm80_throughput (stale)", self.page())
        functions = self.code["functions"]["sm_90"]
        functions["another name"] = functions.pop("01_scalar")
        self.write_code()
        self.assertEqual(self.run_tool("--check"), 0)
        del functions["another name"]
        self.write_code()
        self.shown("docs/ladder.md", "`01_scalar` (stale)")

    def test_a_row_is_stale_when_one_of_its_functions_is_no_more(self):
        self.run_tool("--no-pictures")
        self.assertEqual(self.run_tool("--check"), 0)
        self.code["functions"]["sm_90"]["a new one"] = "e" * 16
        self.write_code()
        self.assertEqual(self.run_tool("--check"), 0)
        self.change("join 01_scalar")
        self.assertEqual(self.run_tool("--check"), 1)
        self.shown("docs/ladder.md", "`01_scalar` (stale)")
        self.assertNotIn("`00_unfused` (stale)", self.text("docs/ladder.md"))

    def test_a_hash_of_all_that_a_kernel_launches_is_no_functions(self):
        self.ladder["rungs"][0]["fingerprint"] = f"nvcc 13.0.88 sm_90 {'7' * 16}"
        self.write()
        self.shown("docs/ladder.md", "`00_unfused` (stale)")

    def test_what_did_not_run_is_not_stale(self):
        refused = {"implementation": "forward_sm90_throughput:paged", "source": "flashcore", "fingerprint": "", "gate": None,
                   "times": {}, "refusal": "pages: are none, wanted some"}
        self.bench["cases"][0]["rows"].append(refused)
        self.write()
        self.run_tool("--no-pictures")
        self.assertIn("forward_sm90_throughput:paged", self.page())
        self.assertNotIn("(stale)", self.page())

    def test_what_a_build_says_nothing_about_is_not_checked(self):
        self.change("00_unfused")
        self.run_tool("--no-pictures")
        pages = self.text("docs/ladder.md")
        self.assertIn("`00_unfused` (stale)", pages)
        built = self.root / "build/machine_code.json"
        ampere = {"nvcc": "13.0.88", "functions": {"sm_80": {"00_unfused": "0" * 16}}}
        for other in (self.code | {"nvcc": "13.1.50"}, ampere, None):
            built.unlink() if other is None else built.write_text(json.dumps(other))
            # A page with another build's marks still matches.
            self.assertEqual(self.run_tool("--check"), 0, self.said.getvalue())
            self.assertIn("not checked: the machine code of 00_unfused, 01_scalar, forward_sm80_throughput:",
                          self.said.getvalue())
        self.run_tool("--no-pictures")
        self.assertEqual(self.text("docs/ladder.md"), pages)
        # Other mistakes are still detected.
        (self.root / "docs/ladder.md").write_text(pages.replace("20.50", "10.50"))
        self.assertEqual(self.run_tool("--check"), 1)

    def test_a_build_elsewhere_can_be_named(self):
        self.run_tool("--no-pictures")
        self.change("00_unfused")
        (self.root / "build").rename(self.root / "elsewhere")
        self.assertEqual(self.run_tool("--check"), 0)
        self.assertEqual(self.run_tool("--check", "--build", str(self.root / "elsewhere")), 1)
        for content in ("{", "[]", '{"nvcc": 13, "functions": {}}'):
            (self.root / "elsewhere/machine_code.json").write_text(content)
            self.assertEqual(self.run_tool("--build", str(self.root / "elsewhere")), 1)
            self.assertIn("elsewhere/machine_code.json: ", self.said.getvalue())

    def test_sources_of_a_cpu_kernel_make_its_rows_stale(self):
        (self.root / "src/cpu").mkdir(parents=True)
        (self.root / "src/cpu/forward.cpp").write_text("int one;  // a comment\n")
        prints = Evidence(self.root).sources
        cases = [fixtures.case("cpu", "one", 1, 8, 512, 64, False,
                               [("cpu_simd", 1500.0, "flashcore", prints["cpu_simd"])], "f32")]
        self.put("bench-cpu", fixtures.bench(cases))
        for text, stale in (("int one;\n", False), ("int two;\n", True)):
            (self.root / "src/cpu/forward.cpp").write_text(text)
            self.run_tool("--no-pictures")
            self.assertEqual("`cpu_simd` (stale)" in self.text("docs/results.md"), stale)

    def test_a_failed_rung_has_no_time(self):
        self.ladder["rungs"][1] = fixtures.rung("01_scalar", 1.0, "x", passed=False)
        self.write()
        self.shown("docs/ladder.md", "FAILED", "not timed: o[0] is nan")

    def test_markers_that_are_missing_or_unknown_are_refused(self):
        page = self.root / "docs/ladder.md"
        good = page.read_text()
        for bad in (good.replace("<!-- end: times -->", ""), good + markers(["times"]),
                    good.replace("generated: goals", "generated: aims"),
                    good.replace(markers(["gates"]), "")):
            page.write_text(bad)
            self.assertEqual(self.run_tool("--no-pictures"), 1)

    def test_markup_in_evidence_stays_text(self):
        self.bench["cases"][0]["name"] = "<script>alert(1)</script>|<!-- end: bench five -->"
        self.bench["notes"] = ["<img src=x>"]
        self.write()
        self.assertEqual(self.run_tool("--no-pictures"), 0)
        self.assertEqual(self.run_tool("--check"), 0)
        self.assertNotIn("<script>alert", self.page())
        self.assertNotIn("<img src=x", self.page())
        self.assertNotIn("<script>", self.text("docs/results.md"))
        self.assertIn("&lt;script&gt;alert(1)&lt;/script&gt;&#124;", self.text("docs/results.md"))


class Balance(html.parser.HTMLParser):
    """Counts open elements, and external references."""
    EMPTY = {"meta", "img", "source"}

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.count = [], [], {}

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Html(Tree):
    def test_it_is_whole_and_needs_nothing_else(self):
        page = Balance()
        page.feed(self.page())
        self.assertEqual(page.open, [])
        self.assertEqual(page.outside, [])
        self.assertEqual(page.count["table"], 4)

    def test_a_backward_run_is_named_and_leaves_the_forward_tables_alone(self):
        self.run_tool("--no-pictures")
        before = self.text("docs/results.md")
        cases = [one | {"pass": "backward"} for one in self.bench["cases"]]
        self.put("backward", fixtures.bench(cases) | {"pass": "backward", "deterministic": True})
        self.run_tool("--no-pictures")
        self.assertEqual(before, self.text("docs/results.md"))
        page = self.page()
        self.assertIn("Kernels and peers: backward", page)
        self.assertEqual(page.count("The backward pass."), 1)

    def test_it_is_the_same_each_time(self):
        first = self.page()
        self.assertEqual(first, self.page())


class Schema(unittest.TestCase):
    def refused(self, evidence, sentence):
        with self.assertRaises(Failure) as caught:
            check_evidence(evidence)
        self.assertIn(sentence, str(caught.exception))

    def test_fixtures_hold(self):
        check_evidence(fixtures.standard(""))
        check_evidence(fixtures.ladder([fixtures.rung("a", 1.0, "")]))
        check_evidence(fixtures.python_tests(""))
        check_evidence(fixtures.python_call(""))

    def test_the_evidence_of_the_repository_holds(self):
        self.assertGreaterEqual(len(Evidence(REPOSITORY).files), 3)

    def test_other_things_are_refused_with_their_place(self):
        good = fixtures.standard("")
        self.refused([], 'is [], wanted type "object"')
        self.refused(good | {"schema": "other"}, 'schema: is "other"')
        self.refused(good | {"version": 2}, "version: is 2, wanted const 1")
        self.refused(good | {"version": True}, "version: is true, wanted const 1")
        self.refused(good | {"kind": "talk"}, 'kind: is "talk", wanted enum ["bench"')
        self.refused({k: v for k, v in good.items() if k != "cases"}, "'cases' is a required property")
        self.refused(good | {"protocol": {}}, "('protocol' was unexpected)")
        bad = fixtures.standard("")
        bad["cases"][2]["rows"][1]["refusals"] = "a misspelled key"
        self.refused(bad, "cases[2].rows[1]: Additional properties are not allowed ('refusals' was unexpected)")
        for value, sentence in ((-1, "is -1, wanted exclusiveMinimum 0"), ("1", 'is "1", wanted type "number"'),
                                (None, 'is null, wanted type "number"')):
            bad = fixtures.standard("")
            bad["cases"][2]["rows"][1]["times"]["sustained"]["p50_us"] = value
            self.refused(bad, f"cases[2].rows[1].times.sustained.p50_us: {sentence}")

    def test_compact_files_are_made_whole(self):
        self.assertEqual(whole({"rows": [["#0", "a", True], ["#0", "@0", False]], "texts": {"@0": "#0"},
                                "forms": [["#0", "name", ["gate/limit", 1], "gate/passed"]]}),
                         {"rows": [{"name": "a", "gate": {"limit": 1, "passed": True}},
                                   {"name": "#0", "gate": {"limit": 1, "passed": False}}]})

    def test_files_that_are_no_evidence_are_refused(self):
        for content in ("", "{", "[" * 100000, '{"a": NaN}', "\udcff", '{"a": "@0"}', '{"a": ["#0"]}', '{"forms": 1}',
                        '{"a": ["#0"], "forms": [["#0", "b"]]}', '{"a": ["#0", 1, 2], "forms": [["#0", "b"]]}'):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "docs/evidence/bad.json"
                path.parent.mkdir(parents=True)
                path.write_bytes(content.encode("utf-8", "surrogateescape"))
                with self.assertRaises(Failure):
                    Evidence(pathlib.Path(folder))


if __name__ == "__main__":
    unittest.main()
