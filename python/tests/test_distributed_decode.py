"""Decode over a cache that is cut over several ranks, against one process."""

import pytest

pytest.importorskip("torch.distributed.distributed_c10d", exc_type=ImportError)

import ranks_decode


@pytest.mark.parametrize("names", [(), ("window",), ("slopes", "sinks"), ("softcap", "sinks")])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("in_pages", [False, True])
def test_keys_over_the_ranks(pool, in_pages, queries, names):
    """The bits are the same on every rank."""
    for world in (1, 2, 3, 4):
        for dtype in ("float32", "bfloat16"):
            arguments = (queries, names, dtype, in_pages)
            first, *others = pool.run(ranks_decode.compare, *arguments, world=world)
            for other in others:
                assert other == first


def test_a_cache_that_grows(pool):
    pool.run(ranks_decode.append, world=3)


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_sequences_over_the_ranks(pool, batch):
    for world in (1, 2, 3, 4):
        pool.run(ranks_decode.sequences, batch, world=world)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spoil": "rank"}, "softcap: is 2.0 on rank 1, wanted None as on rank 0"),
        ({"cut": "heads"}, "cut: is 'heads', wanted one of keys, sequences"),
        ({"queries": 3}, "alignment: is not 'given', wanted it so, with causal_offsets"),
        ({"window": (4, 0)}, "alignment: is not 'given', wanted it so, with causal_offsets"),
        ({"array": True}, "k_new: is given, wanted flashcore.append on the rank"),
        ({"return_amax": True}, "return_amax: is given, wanted it left out over several ranks"),
        ({"pages": 1}, "pages: is no argument of decode"),
    ],
)
def test_refusals(pool, options, message):
    for answer in pool.run(ranks_decode.wrong, options, world=2):
        assert message in answer
