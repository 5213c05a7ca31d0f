"""Sinks, ALiBi, biases and masks over several ranks, against fp64 on one."""

import pytest

pytest.importorskip("torch.distributed.distributed_c10d", exc_type=ImportError)

import ranks
import ranks_extras
from ranks_extras import MASKS


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("algorithm", ["ring", "all_gather"])
@pytest.mark.parametrize("which", [*ranks.EXTRAS, "several"])
def test_dense(pool, which, algorithm, layout, mask):
    names = ("sinks", "slopes", "bias of heads", "mask") if which == "several" else (which,)
    for world in (1, 2, 3, 4):
        for lengths, lengths_kv in (((37,), (37,)), ((14,), (30,)), ((3,), (2,))):
            arguments = (lengths, lengths_kv, False, layout, algorithm, MASKS[mask], names)
            pool.run(ranks.compare, *arguments, world=world)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_ulysses(pool, layout, mask):
    """It refuses biases and masks."""
    for names in (("sinks",), ("slopes",), ("sinks", "slopes")):
        for world in (1, 2, 4):
            arguments = ((37,), (37,), False, layout, "ulysses", MASKS[mask], names)
            pool.run(ranks.compare, *arguments, world=world)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("algorithm", ["ring", "all_gather", "ulysses"])
@pytest.mark.parametrize("which", ["sinks", "slopes"])
def test_packed(pool, which, algorithm, mask):
    for world in (2, 4):
        for layout in ("contiguous", "zigzag"):
            for lengths, lengths_kv in (((3, 40, 0, 17, 1),) * 2, ((9, 30), (20, 30))):
                arguments = (lengths, lengths_kv, True, layout, algorithm, MASKS[mask], (which,))
                pool.run(ranks.compare, *arguments, world=world)


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
def test_sinks_that_are_not_finite(pool, value):
    pool.run(ranks_extras.sinks_at_the_edges, value, world=2)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("sinks of three", "sinks: shape is [3], wanted [4]"),
        ("half sinks", "sinks: is float16 on cpu, wanted float32 on cpu"),
        ("no tensor", "alibi_slopes: is a list, wanted a torch.Tensor"),
        ("few keys", "bias: shape is [1, 1, 8, 8], wanted [1, 4, 8, 16], this rank's queries"),
        ("all rows", "mask: shape is [1, 1, 16, 16], wanted [1, 4, 8, 16], this rank's queries"),
        ("ulysses", "algorithm: is ulysses with a bias or a mask, wanted ring or all_gather"),
        ("one rank", "sinks.dtype: is float32 on rank 1, wanted None as on rank 0"),
    ],
)
def test_refusals(pool, which, message):
    for answer in pool.run(ranks_extras.wrong, which, world=2):
        assert message in answer


def test_masks_of_replaced_sdpa(pool):
    pool.run(ranks_extras.masked_sdpa, world=3)
