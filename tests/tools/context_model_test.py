"""The model of attention over many GPUs: what it says about cases that can be reckoned by hand."""
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import context_model as model  # noqa: E402


class Times(unittest.TestCase):
    def test_a_ring_takes_the_longer_of_calls_and_transfers(self):
        fast, slow = model.Setting(far=1e15), model.Setting(far=1e3)
        self.assertAlmostEqual(model.ring(fast, 64).seconds, fast.calls(64))
        sent = slow.tokens / 64 * slow.row(slow.heads_kv)
        step = slow.calls(64) / 64
        self.assertAlmostEqual(model.ring(slow, 64).seconds / (63 * sent / 1e3 + step), 1)

    def test_bytes_between_nodes(self):
        setting = model.Setting()
        everything = setting.tokens * setting.row(setting.heads_kv)
        self.assertEqual(model.ring(setting, 8).far_bytes, 0)
        self.assertAlmostEqual(model.ring(setting, 64).far_bytes, everything * 63 / 64)
        self.assertAlmostEqual(model.all_gather(setting, 64).far_bytes, everything * 56 / 64)
        # A GPU has an eighth of the heads of all rows but its own node's.
        self.assertAlmostEqual(model.two_levels(setting, 64).far_bytes, everything / 8 * 7 / 8)

    def test_what_is_not_possible(self):
        setting = model.Setting(heads=64)
        self.assertTrue(math.isinf(model.ulysses(setting, 128).seconds))
        self.assertTrue(math.isinf(model.two_levels(setting, 8).seconds))
        self.assertFalse(math.isinf(model.ulysses(setting, 64).seconds))

    def test_the_best_has_the_fewest_bytes_among_equal_times(self):
        short, long = model.Time(1.0, 5), model.Time(1.0005, 3)
        self.assertEqual(model.best({"ring": short, "two levels": long}), "two levels")
        self.assertEqual(model.best({"ring": short, "two levels": model.Time(1.1, 0)}), "ring")


if __name__ == "__main__":
    unittest.main()
