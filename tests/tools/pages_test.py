"""The pages: how long they are, that their numbers are generated, that what they name exists, and that the front page
leads to all of them. `python3 tools/pages.py` prints the words of each page."""
import functools
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import check_words  # noqa: E402
import pages  # noqa: E402

# Words by hand, at most: of pages together where a row has several.
IN_ALL = 40_000
LIMITS = {
    ("README.md",): 900,
    ("docs/install.md", "CONTRIBUTING.md"): 1500,
    ("docs/command.md",): 1500,
    ("docs/python.md",): 1800,
    ("docs/cpp.md", "docs/c.md", "docs/rust.md"): 1400,
    ("docs/semantics.md",): 5000,
    ("docs/accuracy.md",): 2500,
    ("docs/environment.md",): 900,
    ("docs/results.md",): 600,
    ("docs/performance.md",): 900,
    ("docs/verification.md",): 800,
    ("docs/measurement.md",): 1800,
    ("docs/simulator.md",): 1800,
    ("docs/tuning.md",): 1200,
    ("docs/evolve.md",): 1800,
    ("docs/forward-sm90.md",): 2500,
    ("docs/forward-sm90-options.md",): 500,
    ("docs/forward-sm80.md",): 1800,
    ("docs/forward-fp8.md",): 2500,
    ("docs/decode.md",): 2000,
    ("docs/mla.md",): 620,
    ("docs/distributed.md",): 1500,
    ("docs/llama-cpp.md",): 500,
    ("docs/serving-engines.md",): 500,
    ("docs/backward.md",): 2500,
    ("docs/cpu.md",): 1500,
    ("docs/ladder.md",): 3000,
    ("docs/architecture.md", "docs/adding-a-kernel.md"): 2300,
    ("examples/README.md",): 300,
    ("docs/stability.md",): 600,
    ("docs/threat-model.md",): 1200,
    ("docs/dependencies.md", "SECURITY.md"): 300,
    ("CHANGELOG.md",): 2000,
}
DOORS = ["Use it", "What it computes", "How fast and why", "How it works", "Work on it"]

COUNT = r"(?:\d[\d,]*(?:\.\d+)?|half|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty)"
UNIT = (r"(?:[nuµm]s|s|min|minutes?|(?:micro|milli|nano)?seconds?|hours?|[TG]FLOP/s|[TGM]i?B/s|%|percent|[MG]Hz|clocks?|cycles?)"
        r"(?![\w/])")
TIMES = rf"(?:{COUNT}x(?!\w)|(?:{COUNT} times|twice|half) as (?:fast|long|slow)|{COUNT} times (?:faster|slower|the time|cu|Py))"
MEASURED = re.compile(rf"(?<![\w.^]){COUNT}[\s-]?{UNIT}|(?<![\w.]){TIMES}")
HEADER = re.compile(r"\b(?:[um]s|[TG]FLOP/s|[TG]B/s)(?![\w/])|%")

KERNEL = re.compile(r"(?:forward|backward|decode|cpu|quantize)_[a-z0-9_]+|\d\d_[a-z][a-z0-9_]+")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
VARIABLE = re.compile(r"\bFLASHCORE_[A-Z0-9_]+\b")
FILE = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:cpp|hpp|cu|cuh|c|h|py|sh|rs|md|cmake)|(?:[\w.-]+/)+|"
                  r"(?:bench|cli|cmake|docs|evolve|examples|include|python|rust|scripts|sim|src|tests|tools)/[\w./-]+")
# Flags of other programs, in commands that a page shows.
OTHERS = {"--prefix", "--install", "--build", "--parallel", "--config-settings", "--cflags", "--libs", "--version", "--help",
          "--features", "--test-dir", "--target", "--release", "--example", "--no-run", "--set", "--output-on-failure", "--num-cuda-barriers"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def too_long(counts: dict[str, int]) -> list[str]:
    """Of pages that are there."""
    found = []
    for names, most in LIMITS.items():
        number = sum(counts.get(name, 0) for name in names)
        if number > most:
            found.append(f"{' + '.join(names)}: {number} words, wanted at most {most}")
    known = {name for names in LIMITS for name in names}
    found += [f"{name}: has no limit in LIMITS" for name in counts if name not in known]
    if sum(counts.values()) > IN_ALL:
        found.append(f"{sum(counts.values())} words in all, wanted at most {IN_ALL}")
    return found


def measured_numbers(text: str) -> list[str]:
    """Numbers with a unit that no program wrote."""
    text = pages.without(text, pages.METHOD)
    text = pages.without(pages.by_hand(text), pages.SPAN)
    text = pages.TARGET.sub("]", text)
    found = [" ".join(match[0].split()) for match in MEASURED.finditer(text)]
    lines = text.splitlines()
    columns: list[int] = []
    for line, below in zip(lines, [*lines[1:], ""]):
        cells = line.strip().strip("|").split("|")
        if not line.startswith("|"):
            columns = []
        elif re.fullmatch(r"[|\s:-]+", below):
            columns = [i for i, cell in enumerate(cells) if HEADER.search(cell)]
        elif columns:
            found += [cells[i].strip() for i in columns if i < len(cells) and re.match(r"\s*\d", cells[i])]
    return found


@functools.cache
def sources() -> str:
    """Everything that is not a page."""
    text = ""
    for folder in ("src", "include", "cli", "bench", "evolve", "sim", "python", "rust", "tools", "scripts", "tests", "cmake",
                   "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in (".md", ".json", ".jsonl", ".safetensors") and \
                    "target" not in path.parts and path.name != "pages_test.py":
                text += path.read_text(encoding="utf-8", errors="replace")
    for name in ("run.sh", "test.sh", "CMakeLists.txt", "pyproject.toml"):
        text += read(name)
    return text


@functools.cache
def kernels() -> set[str]:
    """Every string of the library that may be a kernel's name, and the folders and files of kernels."""
    found = set()
    for path in (ROOT / "src").rglob("*"):
        found |= {path.stem} if KERNEL.fullmatch(path.stem) else set()
        if path.suffix in (".cpp", ".hpp", ".cu", ".cuh"):
            text = path.read_text(encoding="utf-8")
            found |= {name for name in re.findall(r'"(\w+)(?::\w+)?"', text) if KERNEL.fullmatch(name)}
    return found


@functools.cache
def files() -> set[str]:
    """Every path, and each of its ends: `plan/table.hpp` and `table.hpp` are src/plan/table.hpp."""
    found = set()
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if not parts[0].startswith((".git", "build")):
            found |= {"/".join(parts[i:]) for i in range(len(parts))}
    return found


def not_there(text: str) -> list[str]:
    """Kernels, flags, variables and files that the page names and nobody has."""
    text = pages.without(text, pages.HELD, pages.COMMENT)
    spans = [" ".join(span.strip("`").split()) for span in pages.SPAN.findall(pages.by_hand(text))]
    commands = pages.FENCE.findall(text) + pages.INDENTED.findall(text)
    found = []
    for span in spans:
        name = span.partition(":")[0]
        if KERNEL.fullmatch(name) and name not in kernels() | {"forward_simple"} and f" {name}(" not in sources():
            found.append(name)
        path = span.removeprefix("./").strip("/")
        if FILE.fullmatch(path) and not re.search("[A-Z]{4}|^build", path.replace("README", "")) and path not in files():
            found.append(span)
    for code in spans + commands:
        for flag in FLAG.findall(code):
            word = flag[2:]
            if flag not in OTHERS and not re.search(rf"{flag}(?![a-z-])", sources()) and \
                    not re.search(rf'"{word}"|"{word.replace("-", "_")}"', sources()):
                found.append(flag)
        found += [name for name in VARIABLE.findall(code) if name.rstrip("_") not in sources()]
    return found


def numbers_of(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d[\d.]*(?:e-\d+)?", text)]


def limits_of_page(page: str, header: str) -> dict[str, list[float]]:
    """The rows of the table that begins with this header: the numbers after the first name of each."""
    rows = {}
    for line in page.partition(header)[2].partition("\n")[2].splitlines()[1:]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[name.split(",")[0]] = [number for cell in cells for number in numbers_of(cell)[:1] if "e-" in cell]
    return rows


def limits_of_code(code: str) -> dict[str, list[float]]:
    """Of a switch over types whose cases return designated initialisers."""
    return {name or "f32": [float(value) for value in re.findall(r"= (\d[\d.]*e-\d+)", body)]
            for name, body in re.findall(r"(?:case DType::(\w+)|default):\s*return \{(.*?)\};", code, re.DOTALL)}


def links(page: str) -> set[str]:
    text = pages.without(read(page), pages.FENCE)
    found = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", text)
    folder = (ROOT / page).parent
    return {(folder / name).resolve().relative_to(ROOT).as_posix() for name in found if not name.startswith("http")}


def too_far(names: list[str], links_of) -> list[str]:
    """Those that the front page does not lead to in two links."""
    first = links_of("README.md")
    return sorted(set(names) - {"README.md"} - first.union(*map(links_of, first)))


def doors(text: str) -> list[str]:
    """The bold beginnings of the list that the front page opens with."""
    return re.findall(r"^- \*\*([^*]+)\*\*:", pages.without(text, pages.HELD), re.MULTILINE)


class Pages(unittest.TestCase):
    def test_they_are_short(self):
        counts = pages.words_of(pages.pages())
        for name, count in counts.items():
            print(f"{count:6} {name}", file=sys.stderr)
        print(f"{sum(counts.values()):6} in all", file=sys.stderr)
        self.assertEqual(too_long(counts), [])

    def test_a_long_one_is_noticed(self):
        self.assertEqual(too_long({"docs/rust.md": 1000, "docs/c.md": 400}), [])
        self.assertEqual(len(too_long({"docs/rust.md": 1000, "docs/c.md": 401})), 1)
        self.assertEqual(len(too_long({"docs/new.md": 1})), 1)
        self.assertEqual(too_long({"docs/new.md": 40_001})[1:], ["40001 words in all, wanted at most 40000"])

    def test_words_are_those_that_people_write(self):
        text = ("one two <!-- generated: a -->\nx y z\n<!-- end: a --> three\n```cpp\nint main();\n```\n\n    code line\n"
                "| four | - |\n| --- | --- |\n[five](docs/six.md) <!-- method -->seven `eight`<!-- /method -->\n")
        self.assertEqual(pages.words(text), 7)
        self.assertEqual(pages.words("<!-- tested: b -->\n1 2\n<!-- end: b -->"), 0)

    def test_measured_numbers_are_generated(self):
        for name in pages.pages():
            self.assertEqual(measured_numbers(read(name)), [], name)

    def test_a_typed_measurement_is_noticed(self):
        for text, found in (
                ("It takes 14.5 us.", 1), ("about 3 ms", 1), ("0.3 s later", 1), ("707 TFLOP/s", 1), ("4.2 TB/s", 1),
                ("84 to 99% busy", 1), ("1.2x faster", 1), ("three times as fast", 1), ("takes twice as long", 1),
                ("ten minutes", 1), ("2.4 to 2.8 times cuDNN's", 1), ("two\nminutes", 1),
                ("| a | us |\n| --- | --- |\n| b | 17.6 |\n", 1), ("| a | us |\n| --- | --- |\n| b | - |\n", 0),
                ("64 KB of shared memory, 128 threads, 64x128, 2 x 10 heads", 0), ("every 97th key times 6", 0),
                ("in `30 s`", 0), ("<!-- generated: a -->\n30 s\n<!-- end: a -->", 0),
                ("<!-- method -->\n30 s\n<!-- /method --> 40 s", 1), ("```\n30 s\n```", 0), ("2^24 and sm90 s, 8.x", 0), ("3x 12.5x", 2), ("13,400 clocks", 1)):
            self.assertEqual(len(measured_numbers(text)), found, text)

    def test_what_they_name_is_there(self):
        self.assertGreater(len(kernels()), 30)
        for name in pages.pages():
            self.assertEqual(not_there(read(name)), [], name)

    def test_a_wrong_name_is_noticed(self):
        for text, found in (
                ("`forward_sm90_throughput` `forward_sm90_throughput:64x128` `cpu_simd` `15_wgmma_tma` `decode_sm90`", []),
                ("`forward_sm99` and `16_none`", ["forward_sm99", "16_none"]),
                ("`--causal`, `flashcore run --window 1,2`", []), ("`--cause`", ["--cause"]),
                ("    build/bin/flashcore run --cause\n", ["--cause"]), ("```\nrun --cause\n```", ["--cause"]),
                ("`FLASHCORE_KERNEL` `FLASHCORE_KERNELS`", ["FLASHCORE_KERNELS"]),
                ("`src/plan/table.hpp` `table.hpp` `bench/gate/`", []), ("`src/plan/tables.hpp`", ["src/plan/tables.hpp"]),
                ("`no_such_file.cuh` `bench/gates/`", ["no_such_file.cuh", "bench/gates/"]),
                ("`./run.sh`, `DIRECTORY/lib/a.h`, `build/bin/flashcore`, `scores/bias/f16`", [])):
            self.assertEqual(not_there(text), found, text)

    def test_the_limits_on_the_page_are_those_of_the_gates(self):
        page = read("docs/accuracy.md")
        gates = limits_of_code(read("bench/gate/gates.cpp"))
        found = limits_of_page(page, "| inputs | largest scaled error |")
        self.assertEqual(sorted(gates), ["bf16", "f16", "f32", "f8e5m2"])
        for name, on_page in (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f8e5m2", "f8e4m3")):
            self.assertEqual(found[on_page], gates[name], name)
        self.assertEqual(limits_of_page(page, "| inputs | relative error | largest error"),
                         limits_of_code(read("bench/gate/gradient_gates.cpp")))
        data = dict(re.findall(r'^ +\{"(\w+)", ([\de., -]+),', read("bench/cases/fp8_cases.cpp"), re.MULTILINE))
        self.assertEqual(limits_of_page(page, "| data | what it is |"),
                         {name: numbers_of(limits) for name, limits in data.items()})

    def test_another_limit_is_noticed(self):
        code = "case DType::f16:\n return {.relative_error = 3e-3, .naive = 5e-4};\ndefault:\n return {.relative_error = 5e-6};"
        self.assertEqual(limits_of_code(code), {"f16": [3e-3, 5e-4], "f32": [5e-6]})
        table = "| inputs | a |\n| --- | --- |\n| f16 | 3e-3 | 5e-4 of it |\n| f32 | 5e-6 | |\n\n| more |"
        self.assertEqual(limits_of_page(table, "| inputs |"), {"f16": [3e-3, 5e-4], "f32": [5e-6]})

    def test_the_front_page_has_five_doors_and_leads_everywhere(self):
        self.assertEqual(doors(read("README.md")), DOORS)
        self.assertEqual(too_far(pages.pages(), links), [])

    def test_a_page_that_is_too_far_is_noticed(self):
        leads = {"README.md": {"docs/a.md"}, "docs/a.md": {"docs/b.md"}, "docs/b.md": {"docs/c.md"}, "docs/c.md": set()}
        self.assertEqual(too_far([*leads, "docs/d.md"], leads.get), ["docs/c.md", "docs/d.md"])

    def test_the_front_page_shows_nothing_stale(self):
        self.assertNotIn("(stale)", read("README.md"), "measure it again, or leave it out of the front page")

    def test_a_door_too_many_is_noticed(self):
        self.assertEqual(doors("- **Use it**: [a](b.md)\n- no **door**: c\n- **Another**: d\n"), ["Use it", "Another"])

    def test_language(self):
        self.assertEqual(check_words.check(ROOT), [])

    def test_a_habit_is_noticed(self):
        for text, habit in (("three on an\nSM", "an SM"), ("computed anew", "anew"), ("some of which are", "of which"),
                            ("the clock is that of the board", "that of"), ("Those of Hopper", "Those of"),
                            ("heads whose mask is none", "whose mask is none"), ("sums in turn", "in turn"),
                            ("beside cuDNN", "beside")):
            self.assertEqual([found for _, found, _ in check_words.in_page(text)], [habit], text)
        self.assertEqual(check_words.in_page("`anew` besides, in turns, per SM\n```\nanew\n```"), [])
        for suffix, text, lines in ((".cpp", "a();\nint anew;  // anew", [2]), (".cmake", "# anew", [1]), (".cu", "// beside", [1]),
                                    (".h", "/* a\n * anew */", [2]), (".hpp", "// Whether it is.\n// Not: whether, By", [1]),
                                    (".rs", "/// Of a tensor\n// Often, The samest", [1])):
            self.assertEqual([line for line, *_ in check_words.in_comments(suffix, text)], lines, text)

    def test_a_name_that_was_replaced_is_noticed(self):
        for text, name in (("int most_blocks_an_sm;", "most_blocks_an_sm"), ("a.shared_memory_a_block", "shared_memory_a_block"),
                           ("kKeysASplit = 2", "kKeysASplit = 2"[:11]), ("is_fast_in_turn(p)", "is_fast_in_turn"),
                           ("a\n# A stand-in", "stand-in"), ("See planted faults.", "planted faults"), ("Cover::whole", "Cover::")):
            self.assertEqual([found for _, found, _ in check_words.in_names(text)], [name], text)
        for text in ("in_turns()", "blocks_per_sm", "test_rows_a_tile()", "x;  // calls_a_sample, the former name", "longstanding_in",
                     '{"former_keys": {\n "ns_a_pair": "ns_per_pair"}}', "one_at_a_time", "notes_of_a_row"):
            self.assertEqual(check_words.in_names(text), [], text)


if __name__ == "__main__":
    unittest.main()
