"""Finds an include that violates the arrows between rooms, in any room."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_arrows as tool  # noqa: E402

SOUND = {"include/flashcore/flashcore.hpp": "",
         "src/problem/problem.hpp": '#include "flashcore/flashcore.hpp"',
         "src/kernel/kernel.hpp": '#include "problem/problem.hpp"',
         "src/cuda/ptx/mma.cuh": "",
         "src/cuda/attention/latency/task.cuh": '#include "cuda/ptx/mma.cuh"',
         "src/cuda/host/launch.hpp": "#include <cuda.h>",
         "src/cuda/forward_sm90/common/launch.hpp": '#include "cuda/host/launch.hpp"',
         "src/cuda/forward_sm90/latency/kernel.cuh":
             '#include "cuda/attention/latency/task.cuh"\n#include "cuda/forward_sm90/common/launch.hpp"',
         "src/cuda/forward_sm80/latency/plan.cpp": '#include "made_by_the_build.hpp"',
         "src/tuning/choice.hpp": '#include "kernel/kernel.hpp"',
         "src/plan/table.cpp": '#include "tuning/choice.hpp"\n#include "cuda/forward_sm90/latency/kernel.cuh"',
         "bench/text/table.hpp": "",
         "bench/run/run.cpp": '#include "bench/text/table.hpp"\n#include "plan/table.hpp"',
         "bench/ladder/ladder.cpp": '#include "bench/run/run.hpp"',
         "bench/program.cpp": '#include "cuda/forward_sm90/latency/kernel.cuh"',
         "cli/ladder.cpp": '#include "cli/command.hpp"\n#include "bench/ladder/ladder.hpp"'}


class CheckArrows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in SOUND.items():
            self.write(path, text)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n", encoding="utf-8")

    def test_this_repository_and_a_sound_tree_pass(self):
        self.assertEqual(tool.check(ROOT), [])
        self.assertEqual(tool.check(self.root), [])

    def test_an_injected_include_is_found(self):
        for path, included in (
                ("src/problem/problem.hpp", "kernel/kernel.hpp"),
                ("src/cuda/ptx/mma.cuh", "cuda/attention/latency/task.cuh"),
                ("src/cuda/attention/latency/task.cuh", "cuda/host/launch.hpp"),
                ("src/cuda/forward_sm90/common/launch.hpp", "cuda/forward_sm90/latency/kernel.cuh"),
                ("src/cuda/forward_sm80/latency/plan.cpp", "cuda/forward_sm90/latency/kernel.cuh"),
                ("src/cuda/forward_sm80/latency/plan.cpp", "cuda/forward_sm90/common/launch.hpp"),
                ("src/cuda/forward_sm90/latency/kernel.cuh", "tuning/choice.hpp"),
                ("src/cuda/host/launch.hpp", "plan/table.hpp"),
                ("src/tuning/choice.hpp", "cuda/forward_sm90/latency/kernel.cuh"),
                ("src/plan/table.cpp", "bench/cases/cases.hpp"),
                ("bench/text/table.hpp", "bench/run/run.hpp"),
                ("bench/run/run.cpp", "bench/ladder/ladder.hpp"),
                ("bench/run/run.cpp", "cli/command.hpp"),
                ("bench/ladder/ladder.cpp", "cuda/ladder/rung.hpp"),
                ("cli/ladder.cpp", "plan/table.hpp"),
                ("cli/ladder.cpp", "cuda/ptx/mma.cuh")):
            with self.subTest(path=path, included=included):
                self.write(path, f'{SOUND[path]}\n  #  include "{included}"')
                found = tool.check(self.root)
                self.assertEqual(len(found), 1, found)
                self.assertIn(f"{path}: ", found[0])
                self.assertIn(included, found[0])
                self.write(path, SOUND[path])

    def test_a_file_is_in_a_room(self):
        for path in ("src/attic/old.hpp", "bench/attic/old.hpp"):
            with self.subTest(path=path):
                self.write(path, '#include "flashcore/flashcore.hpp"')
                self.assertEqual(tool.check(self.root), [f"{path}: is in no room of scripts/check_arrows.py"])
                (self.root / path).unlink()


if __name__ == "__main__":
    unittest.main()
