"""A program of test_jax.py: on four devices, arrays sharded by entries and heads stay sharded."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import flashcore

HEADS = 8


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def mesh_of(*sizes):
    return Mesh(np.array(jax.devices()).reshape(sizes), ("x", "y")[: len(sizes)])


def check(call, arrays, shardings, moved=()):
    """The result equals that of one device, with at most `moved` exchanged between devices."""
    expected = call(*arrays)
    placed = [jax.device_put(x, s) for x, s in zip(arrays, shardings, strict=True)]
    compiled = jax.jit(call).lower(*placed).compile()
    found = compiled(*placed)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)
    text = compiled.as_text()
    exchanges = r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)[-\w]*\("
    assert set(re.findall(exchanges, text)) == set(moved), re.findall(exchanges, text)
    return found


def dense(sizes, spec, heads_kv, queries=9, moved=(), moved_back=(), gradients=True):
    mesh = mesh_of(*sizes)
    entries, heads = (*spec, None)[:2]
    q = draw(0, 4, HEADS, queries, 16)
    k, v = (draw(i, 4, heads_kv, 11, 16) for i in (1, 2))
    lengths = jnp.array([11, 3, 5, 7], jnp.int32)
    bias, sinks = draw(3, 1, HEADS, 1, 11), jnp.linspace(-1, 1, HEADS)
    slopes = jnp.linspace(0, 0.2, HEADS)
    of_keys = P(*spec) if heads_kv >= mesh.size or heads is None else P(entries)
    specs = (P(*spec), of_keys, of_keys, P(entries), P(None, heads), P(heads), P(heads))
    shardings = [NamedSharding(mesh, of) for of in specs]
    arrays = (q, k, v, lengths, bias, sinks, slopes)

    def attend(q, k, v, lengths, bias, sinks, slopes):
        return flashcore.attention(
            *(q, k, v),
            causal=True,
            seqlens_kv=lengths,
            bias=bias,
            sinks=sinks,
            alibi_slopes=slopes,
            return_lse=True,
        )

    out, lse = check(attend, arrays, shardings, moved)
    if not moved:
        for result in (out, lse):
            assert result.sharding.is_equivalent_to(shardings[0], result.ndim), result.sharding

    def loss(*arrays):
        out, lse = attend(*arrays)
        return (out**2).sum() + lse.sum()

    if gradients:
        check(jax.grad(loss, (0, 1, 2, 4, 5, 6)), arrays, shardings, moved_back)


def packed():
    mesh = mesh_of(4)
    starts = jnp.array([0, 5, 5, 22], jnp.int32)
    q, k = draw(0, 22, HEADS, 16), draw(1, 22, 4, 16)

    def attend(q, k, starts):
        return flashcore.attention(
            q,
            k,
            k,
            cu_seqlens_q=starts,
            cu_seqlens_kv=starts,
            causal=True,
            return_amax=True,
            return_max_logit=True,
        )

    by_head = NamedSharding(mesh, P(None, "x"))
    check(attend, (q, k, starts), (by_head, by_head, NamedSharding(mesh, P())))


def mapped():
    """vmap inside: a loop over calls that stay sharded."""
    by_head = NamedSharding(mesh_of(4), P(None, None, "x"))
    q = draw(0, 3, 2, HEADS, 5, 16)
    check(jax.vmap(lambda q: flashcore.attention(q, q, q)), (q,), (by_head,))


def split_by_hand():
    """In shard_map, a call sees only its device's part."""
    mesh = mesh_of(4)
    by_head = NamedSharding(mesh, P(None, "x"))
    q = draw(0, 2, HEADS, 5, 16)
    expected = flashcore.attention(q, q, q)
    call = jax.shard_map(
        lambda q: flashcore.attention(q, q, q),
        mesh=mesh,
        in_specs=by_head.spec,
        out_specs=by_head.spec,
        check_vma=False,
    )
    found = jax.jit(call)(jax.device_put(q, by_head))
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-5)


def dropped():
    """Dropout's numbers depend on the global index of a head: the call gathers, and is right."""
    by_head = NamedSharding(mesh_of(4), P(None, "x"))
    q = draw(0, 2, HEADS, 5, 16)

    def attend(q):
        return flashcore.attention(q, q, q, dropout_p=0.5, dropout_seed=1)

    check(attend, (q,), (by_head,), moved={"all-gather"})


CASES = {
    "entries": lambda: dense((4,), ("x",), 4, moved_back={"all-reduce"}),
    "heads": lambda: dense((4,), (None, "x"), 4),
    "both": lambda: dense((2, 2), ("x", "y"), 4, moved_back={"all-reduce"}),
    "one key head": lambda: dense((4,), (None, "x"), 1, moved_back={"all-reduce"}),
    "one query": lambda: dense((4,), (None, "x"), 4, queries=1, gradients=False),
    "too few key heads": lambda: dense((4,), (None, "x"), 2, moved={"all-gather"}, gradients=False),
    "packed": packed,
    "vmap": mapped,
    "dropout": dropped,
    "shard_map": split_by_hand,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print(name, flush=True)
