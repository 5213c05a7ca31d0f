"""Models whose attention is over several ranks: FSDP2, torch.compile, activation checkpointing."""

import pytest

pytest.importorskip("torch.distributed.distributed_c10d", exc_type=ImportError)

import ranks_models

ALGORITHMS = ["ring", "all_gather", "ulysses"]


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_fsdp(pool, algorithm, recomputes):
    pool.run(ranks_models.fsdp, algorithm, recomputes, world=4)


@pytest.mark.compiles
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_compiled(pool, algorithm):
    pool.run(ranks_models.compiled, algorithm, world=2)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checkpointed(pool, algorithm, reentrant):
    pool.run(ranks_models.checkpointed, algorithm, reentrant, world=2)
