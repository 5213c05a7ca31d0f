"""Pictures without a measurement, and parts of pages that come from the source: they say what the source says."""
import pathlib
import re
import sys
import unittest
import xml.etree.ElementTree
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import check_arrows  # noqa: E402
from reporting import context, diagrams, evolve, memory_plans, schedules, simulator, tuning  # noqa: E402
from reporting.evidence import Failure  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def drawn(make):
    return xml.etree.ElementTree.fromstring(make("0" * 16))


class ContextParallel(unittest.TestCase):
    def test_a_line_has_a_point_for_each_world_that_is_possible(self):
        text = (ROOT / "docs/images/context-parallel.svg").read_text(encoding="utf-8")
        for name, line in context.lines().items():
            style = re.search(rf"\.(c\d+){{fill: {context.COLORS[name]}; stroke", text)[1]
            self.assertEqual(len(re.findall(rf'<use [^>]*class="{style}"', text)), len(line), name)
        self.assertEqual(set(context.lines()), set(context.COLORS))
        for line in context.lines().values():
            for world, share in line:
                self.assertTrue(0 < share <= 1, f"{share} at {world}")


class Architecture(unittest.TestCase):
    def test_every_arrow_points_down(self):
        arrows = diagrams.arrows()
        self.assertGreater(sum(map(len, arrows.values())), 15)
        for box, others in arrows.items():
            for other in others:
                self.assertLess(diagrams.BOXES[box][0][3], diagrams.BOXES[other][0][1], f"{box} and {other}")

    def test_boxes_do_not_overlap(self):
        places = [diagrams.BOXES[box][0] for box in diagrams.arrows()]
        for one in places:
            for other in places:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                self.assertTrue(one is other or apart, f"{one} and {other}")

    def test_it_has_every_arrow_and_no_more(self):
        tree = drawn(diagrams.architecture)
        paths = [one for one in tree.iter(SVG + "path") if one.get("class") == "arrow"]
        self.assertEqual(len(paths), sum(map(len, diagrams.arrows().values())))

    def test_a_room_without_a_box_is_noticed(self):
        with mock.patch.dict(check_arrows.ARROWS, {"cuda/new": "problem"}), self.assertRaises(Failure) as raised:
            diagrams.arrows()
        self.assertIn("cuda/new", str(raised.exception))

    def test_an_arrow_through_a_box_is_noticed(self):
        with self.assertRaises(Failure):
            diagrams.arrow(diagrams.BOXES["cli"][0], diagrams.BOXES["plan"][0])


class Schedules(unittest.TestCase):
    def test_nobody_does_two_things_at_once(self):
        for name, (_, lanes, _) in schedules.SCHEDULES.items():
            for lane, pieces in lanes:
                ordered = sorted(pieces)
                for (_, end, *_), (begin, *_) in zip(ordered, ordered[1:]):
                    self.assertLessEqual(end, begin, f"{name}, {lane}")

    def test_they_have_the_colours_of_both_themes(self):
        for name, (_, make) in schedules.all_of_them().items():
            self.assertIn(schedules.SCHEDULES[name][0], [one.text for one in drawn(make).iter(SVG + "text")])
            text = make("0" * 16)
            for used in set(re.findall(r"var\(--(\w+)\)", text)):
                self.assertEqual(text.count(f"--{used}:"), 2, used)

    def test_words_that_do_not_fit_are_noticed(self):
        with self.assertRaises(Failure):
            schedules.piece(0, 1, "too many words", "copy", 0)

    def test_kernels_are_those_of_the_library(self):
        folders = {folder.name for folder in (ROOT / "src/cuda").iterdir()}
        for title, *_ in schedules.SCHEDULES.values():
            name = title.split(":")[0].split(",")[0].removesuffix("_throughput")
            self.assertIn(name, folders)


def sizes_on_page(page, header):
    """The numbers of KB in each row of the table that begins with this header."""
    table = (ROOT / page).read_text(encoding="utf-8").partition(header)[2].partition("\n\n")[0]
    rows = [re.findall(r"\| (\d+(?: / \d+)*) KB", line) for line in table.splitlines()]
    return [[int(size) for sizes in row for size in sizes.split(" / ")] for row in rows if row]


class MemoryPlans(unittest.TestCase):
    def kilobytes(self, bars):
        return [memory_plans.total(groups) / memory_plans.KB for _, groups, _ in bars]

    def test_pages_have_the_sizes_of_the_source(self):
        sm90 = sizes_on_page("docs/forward-sm90.md", "| head dimensions up to | queries x keys | consumers |")
        self.assertEqual([size for (size,) in sm90], self.kilobytes(memory_plans.forward_sm90()))
        sm80 = [size for (size,) in sizes_on_page("docs/forward-sm80.md", "| tile for head dimensions up to |")]
        self.assertEqual(sorted(sm80), sorted(self.kilobytes(memory_plans.forward_sm80())))
        decode = sizes_on_page("docs/decode.md", "| head dimension up to | keys per tile, 16 bit / fp8 | dynamic")
        self.assertEqual(sorted(sum(decode, [])), sorted(self.kilobytes(memory_plans.decode_sm90())))

    def test_they_fit_an_sm(self):
        for _, bars, most, _ in memory_plans.PLANS.values():
            for name, groups, copies in bars():
                size = memory_plans.total(groups) / memory_plans.KB
                self.assertLessEqual(size, 163 if name.startswith("pairs") else most, name)
                self.assertLessEqual(copies * (size + 1), 228, name)

    def test_every_bar_is_drawn(self):
        for name, (_, make) in memory_plans.all_of_them().items():
            texts = [one.text for one in drawn(make).iter(SVG + "text")]
            title, bars, *_ = memory_plans.PLANS[name]
            self.assertIn(title, texts)
            for bar, *_ in bars():
                self.assertIn(bar, texts)

    def test_a_table_that_is_gone_is_noticed(self):
        with self.assertRaises(Failure) as raised:
            memory_plans.configs("forward_sm80/throughput", "kNoConfigs")
        self.assertIn("kNoConfigs", str(raised.exception))


class FromTheSource(unittest.TestCase):
    def test_faults_are_counted(self):
        found = simulator.injected()
        self.assertIn(f"| all | {len(found)} |", simulator.by_kernel())
        for fault in found:
            self.assertEqual(f"- {simulator.title(fault)}:" in simulator.not_found(), fault.reported is None)

    def test_runs_of_evolve_have_a_seed_and_others(self):
        for name in evolve.RUNS:
            attempts = evolve.attempts_of(ROOT / f"docs/evidence/{name}.jsonl")
            self.assertEqual(attempts[0]["name"], "seed")
            self.assertEqual(len(evolve.row("a run", name, attempts)), 8)

    def test_the_regret_of_the_model_is_in_its_constants(self):
        text = tuning.model(mock.Mock(root=ROOT))
        self.assertIn("tiles of forward_sm90_throughput", text)
        self.assertEqual(tuning.model(mock.Mock(root=ROOT / "none")), "Not fitted yet.")


if __name__ == "__main__":
    unittest.main()
