"""JAX arrays, eagerly, on JAX's default device."""

import gates
import numpy as np
import pytest

import flashcore

jax = pytest.importorskip("jax")
jnp = jax.numpy

GPU = jax.default_backend() == "gpu"
DTYPES = ["float16", "bfloat16"] if GPU else ["float32", "float16", "bfloat16"]


def inputs(dtype, lengths=(37, 53)):
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(2, 4, lengths[0], 64), *[(2, 2, lengths[1], 64)] * 2]
    return [jax.random.normal(k, s, dtype) for k, s in zip(keys, shapes, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_the_same_as_with_numpy(dtype, causal):
    q, k, v = inputs(dtype)
    before = [np.asarray(x).copy() for x in (q, k, v)]
    mask = jnp.asarray(np.random.default_rng(0).random((2, 1, 37, 53)) < 0.8)
    lengths = jnp.array([53, 20], jnp.int32)
    out, lse = flashcore.attention(
        q, k, v, causal=causal, mask=mask, seqlens_kv=lengths, return_lse=True
    )
    assert isinstance(out, jax.Array)
    assert out.dtype == q.dtype
    assert out.devices() == q.devices()
    host = (np.asarray(x, np.float32) for x in (q, k, v))
    expected, expected_lse = flashcore.attention(
        *host,
        causal=causal,
        mask=np.asarray(mask),
        seqlens_kv=np.asarray(lengths),
        return_lse=True,
    )
    gates.check(np.asarray(out, np.float32), expected, dtype)
    gates.check_lse(lse, expected_lse, dtype)
    for x, old in zip((q, k, v), before, strict=True):
        assert np.array_equal(np.asarray(x), old)


def test_results_can_be_used_on(rng):
    q, k, v = inputs(DTYPES[0])
    results = [flashcore.attention(q * scale, k, v) for scale in (1, 2, 3)]
    total = sum(r.astype(jnp.float32) for r in results)
    single = sum(np.asarray(r, np.float32) for r in results)
    assert np.allclose(total, single, atol=1e-5)
    assert not np.array_equal(results[0], results[1])


def test_late_inputs_are_waited_for():
    x = jnp.ones((1500, 1500), jnp.float32)
    for _ in range(20):
        x = x @ x / 1500  # queued, not done
    q = jnp.broadcast_to(x[0, 0].astype(DTYPES[0]), (1, 2, 64, 64))
    out = flashcore.attention(q, q, q)
    assert np.allclose(np.asarray(out, np.float32), np.asarray(q, np.float32), atol=1e-2)


def test_zero_sizes():
    empty = jnp.ones((1, 4, 0, 64), DTYPES[0])
    assert flashcore.attention(empty, empty, empty).shape == empty.shape


def test_traced():
    q, _, _ = inputs(DTYPES[0])
    with pytest.raises(NotImplementedError, match="traced"):
        jax.jit(lambda q: flashcore.attention(q, q, q))(q)
    with pytest.raises(NotImplementedError, match="traced"):
        jax.vmap(lambda q: flashcore.attention(q[None], q[None], q[None]))(q)


def test_hostile():
    q, k, v = inputs(DTYPES[0])
    with pytest.raises(TypeError, match="immutable"):
        flashcore.attention(q, k, v, out=q)
    with pytest.raises(TypeError, match="wanted a jax.Array, as q is"):
        flashcore.attention(q, np.asarray(k), v)
    with pytest.raises(ValueError, match="dtype is i32"):
        flashcore.attention(*[q.astype(jnp.int32)] * 3)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_float32_is_refused_on_the_gpu():
    q, k, v = inputs("float32")
    with pytest.raises(NotImplementedError, match="no kernel of this device"):
        flashcore.attention(q, k, v)
