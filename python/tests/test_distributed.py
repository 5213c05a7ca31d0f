"""Attention over several ranks, which are gloo processes here, against one process and fp64."""

import math

import pytest

pytest.importorskip("torch.distributed.distributed_c10d", exc_type=ImportError)

import ranks
import torch

import flashcore
import flashcore.distributed as fd

ALGORITHMS = ["ring", "all_gather", "ulysses"]
LAYOUTS = ["contiguous", "zigzag"]
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": (9, 0)},
    "both sides": {"window": (7, 12)},
    "top left": {"causal": True, "alignment": "top_left", "softmax_scale": 0.3, "softcap": 5.0},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_dense(pool, algorithm, layout, mask):
    for world in (1, 2, 3, 4):
        if algorithm == "ulysses" and world == 3:
            continue  # 4 heads
        for lengths, lengths_kv in (((61,), (61,)), ((24,), (48,)), ((2,), (3,))):
            arguments = (lengths, lengths_kv, False, layout, algorithm, MASKS[mask])
            pool.run(ranks.compare, *arguments, world=world)


@pytest.mark.parametrize("mask", ["full", "causal", "window", "both sides"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_packed(pool, algorithm, layout, mask):
    """Documents cross ranks; some are shorter than the world, one is empty."""
    for world in (2, 4):
        for lengths, lengths_kv in (((3, 40, 0, 17, 1), (3, 40, 0, 17, 1)), ((9, 30), (20, 30))):
            arguments = (lengths, lengths_kv, True, layout, algorithm, MASKS[mask])
            pool.run(ranks.compare, *arguments, world=world)


@pytest.mark.slow
def test_eight_ranks():
    own = ranks.Ranks(8)
    try:
        for algorithm in ("ring", "all_gather"):
            for layout in LAYOUTS:
                for options in MASKS.values():
                    arguments = ((131,), (131,), False, layout, algorithm, options)
                    own.run(ranks.compare, *arguments, world=8)
    finally:
        own.close()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_halves(pool, algorithm, dtype):
    pool.run(
        ranks.compare, (90,), (90,), False, "zigzag", algorithm, {"causal": True}, (), None, dtype,
        world=4,
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bits_are_the_same_in_every_run(pool, algorithm):
    for options in ({"causal": True}, {"window": (7, 12)}):
        arguments = ((61,), (61,), False, "zigzag", algorithm, options)
        first, *others = (pool.run(ranks.compare, *arguments, world=4)[0] for _ in range(3))
        for other in others:
            assert other == first


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dtype", "float16", "q.dtype: is float16 on rank 2, wanted float32 as on rank 0"),
        ("heads", 2, "q.shape: is [1, 2, -1, 32] on rank 2, wanted [1, 4, -1, 32] as on rank 0"),
        ("causal", False, "causal: is False on rank 2, wanted True as on rank 0"),
        ("window", (4, 0), "window: is [4, 0] on rank 2, wanted [-1, -1] as on rank 0"),
        ("layout", "contiguous", "layout: is contiguous on rank 2, wanted zigzag as on rank 0"),
        ("algorithm", "ulysses", "algorithm: is ulysses on rank 2, wanted automatic as on rank 0"),
        ("rows", 6, "seqlens_q: is [24] on rank 2, wanted [64] as on rank 0"),
        ("seqlen_q", 127, "seqlens_q: is [127] on rank 2, wanted [128] as on rank 0"),
    ],
)
def test_a_rank_that_disagrees_is_an_error_on_all(pool, name, value, message):
    rows = {"rows": 16, "seqlen_q": 32}.get(name) or 40 + 4 * len(name) + len(
        str(value)
    )  # new to all
    assert pool.run(ranks.disagree, 2, rows, name, value, world=4) == [message] * 4


def test_the_rows_of_a_rank_are_its_share(pool):
    for seqlen, message in (
        (16, "q: rank 2 has 5 rows, wanted 6: its share of 16 in the layout zigzag"),
        (15, ""),
        (None, ""),
    ):
        assert pool.run(ranks.share, 5, seqlen, world=3) == [message] * 3


def test_ranks_that_do_not_meet_are_an_error_within_the_timeout():
    own = ranks.Ranks(3, timeout=2)
    try:
        zero, one, two = own.run(ranks.go_apart, 1, world=3)
    finally:
        own.close()
    assert "ranks 0, 2 did not make this call, so rank 1 cannot go on" in one
    for answer in (zero, two):
        assert answer.startswith("rank 1 made another call")


def test_a_rank_that_stops_is_an_error_on_the_others():
    own = ranks.Ranks(4, timeout=5)
    answers = own.answers(ranks.stop, 1, world=4)
    own.close()
    for rank in (0, 2, 3):
        assert answers[rank][0]
        assert "rank 1 stopped" in answers[rank][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q_scale": 1}, "q_scale: is given, wanted it left out"),
        ({"dropout_p": 0.1}, "dropout_p: is given, wanted it left out: dropout draws by"),
        ({"is_causal": True}, "is_causal: is no argument of context_parallel_attention"),
        ({"layout": "striped"}, "layout: is 'striped', wanted one of contiguous, zigzag"),
        ({"alignment": "given"}, "alignment: is 'given', wanted one of top_left, bottom_right"),
        ({"cu_seqlens_q": [0, 8]}, "cu_seqlens_q: wanted it with packed tensors"),
        ({"algorithm": "ulysses", "spoil": "heads"}, "ulysses has 3 query heads"),
        ({"spoil": "dtype"}, "k: is torch.float16 on cpu, wanted q's torch.float32 on cpu"),
        ({"spoil": "kv"}, "k: has 2 heads, wanted a divisor of q's 3"),
        ({"spoil": "rank"}, "k: has 3 dimensions, wanted 4"),
        ({"spoil": "double"}, "q: dtype is torch.float64, wanted float32, float16 or bfloat16"),
    ],
)
def test_refusals(pool, options, message):
    for answer in pool.run(ranks.refused, options, world=2):
        assert message in answer


def test_helpers(pool):
    pool.run(ranks.helpers, world=3)


def test_replaced_sdpa(pool):
    pool.run(ranks.replaced, world=2)


def test_without_a_group():
    with pytest.raises(ValueError, match="there is no process group"):
        fd.shard(torch.zeros(1, 1, 4, 8))


def test_explain():
    shape = {"heads_q": 32, "heads_kv": 8, "head_dim": 128, "causal": True}
    ring, gather, ulysses = fd.explain(4, 131072, **shape)
    assert [x["algorithm"] for x in (ring, gather, ulysses)] == ["ring", "all_gather", "ulysses"]
    assert ring["chosen"]
    assert ring["steps"] == 4
    assert gather["seconds"] > ring["seconds"]
    assert fd.explain(4, 131072, **shape, algorithm="ulysses")[2]["chosen"]
    # Without groups of heads, Ulysses moves the fewest bytes, which count where links are slow.
    shape["heads_kv"] = 32
    assert fd.explain(4, 8192, **shape, link_bytes_per_second=1e9)[2]["chosen"]
    six = fd.explain(4, 64, heads_q=6, heads_kv=2, head_dim=64)[2]
    assert math.isinf(six["seconds"])
    assert "6 query heads" in six["refusal"]
    with pytest.raises(flashcore.UnsupportedError, match="6 query heads"):
        fd.explain(4, 64, heads_q=6, heads_kv=2, head_dim=64, algorithm="ulysses")
