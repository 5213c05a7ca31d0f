"""Models whose attention is over several ranks: FSDP2, torch.compile, activation checkpointing."""

import pytest
import ranks
import ranks_models

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch without torch.distributed"
)

ALGORITHMS = ["ring", "all_gather", "ulysses"]


@pytest.fixture(scope="module")
def pool():
    found = ranks.Ranks(4)
    yield found
    found.close()


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
