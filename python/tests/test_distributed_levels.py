"""Ring and Ulysses in two levels, against fp64 on one process."""

import pytest

pytest.importorskip("torch.distributed.distributed_c10d", exc_type=ImportError)

import ranks
import ranks_extras
from ranks_extras import MASKS


@pytest.mark.parametrize("mesh", [(2, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("mask", MASKS)
def test_dense(pool, mask, layout, mesh):
    """Two KV heads: four ranks share them."""
    for algorithm in ("ring", "all_gather"):
        for lengths, lengths_kv in (((37,), (37,)), ((14,), (30,)), ((3,), (2,))):
            for names in ((), ("sinks", "slopes")):
                arguments = (lengths, lengths_kv, False, layout, algorithm, MASKS[mask], names)
                pool.run(ranks.compare, *arguments, mesh, world=4)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_packed(pool, layout):
    for lengths, lengths_kv in (((3, 40, 0, 17, 1),) * 2, ((9, 30), (20, 30))):
        for options in MASKS.values():
            arguments = (lengths, lengths_kv, True, layout, "ring", options, ("sinks",))
            pool.run(ranks.compare, *arguments, (2, 2), world=4)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("heads", "group: has 4 ranks for 2 query heads and 1 KV heads, wanted a divisor"),
        ("mask", "group: is a mesh of two dimensions, wanted one with a bias or a mask"),
        ("layout", "layout: is 'striped', wanted one of contiguous, zigzag"),
    ],
)
def test_refusals(pool, which, message):
    for answer in pool.run(ranks_extras.wrong_levels, which, world=4):
        assert message in answer


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("causal", False, "causal: is False on rank 1, wanted True as on rank 0"),
        ("softcap", 2.0, "softcap: is 2.0 on rank 1, wanted 0.0 as on rank 0"),
        ("layout", "contiguous", "layout: is contiguous on rank 1, wanted zigzag as on rank 0"),
    ],
)
def test_a_rank_that_disagrees_is_an_error_on_all(pool, name, value, message):
    """Ranks are those of a place in the ring; the others hear of it."""
    zero, one, two, three = pool.run(ranks_extras.levels_disagree, name, value, world=4)
    assert (two, three) == (message, message)
    for other in (zero, one):
        assert message in other or "call: is" in other
