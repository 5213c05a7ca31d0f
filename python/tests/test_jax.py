"""JAX arrays, eagerly and traced, on JAX's default device."""

import pathlib

import definition
import gates
import numpy as np
import pytest
from process import python

import flashcore
from flashcore import _gradients
from flashcore._layout import CODES
from flashcore._library import CUDA

jax = pytest.importorskip("jax")
jnp = jax.numpy

GPU = jax.default_backend() == "gpu"
DTYPES = ["float32", "float16", "bfloat16"]
differentiates = pytest.mark.skipif(
    GPU and not _gradients.differentiates((CUDA, 0), CODES["float16"], 64, 64),
    reason="the GPU has no backward pass",
)


def inputs(dtype, lengths=(37, 53)):
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(2, 4, lengths[0], 64), *[(2, 2, lengths[1], 64)] * 2]
    return [jax.random.normal(k, s, dtype) for k, s in zip(keys, shapes, strict=True)]


def test_an_eager_call_is_in_the_default_stream():
    from flashcore._jax import backend

    assert backend.stream(jnp.zeros(1)) == 0  # JAX exposes no stream of its own


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
        x = x @ x / 1500  # queued, not finished
    q = jnp.broadcast_to(x[0, 0].astype(DTYPES[0]), (1, 2, 64, 64))
    out = flashcore.attention(q, q, q)
    assert np.allclose(np.asarray(out, np.float32), np.asarray(q, np.float32), atol=1e-2)


def test_under_vmap_and_scan():
    q, _, _ = inputs(DTYPES[0])
    rows = jnp.stack([q, q * 2, -q])
    expected = np.stack([flashcore.attention(r, r, r, dropout_p=0.1, dropout_seed=5) for r in rows])

    def one(x):
        return flashcore.attention(x, x, x, dropout_p=0.1, dropout_seed=5)

    assert np.array_equal(np.asarray(jax.vmap(one)(rows)), expected)
    _, scanned = jax.jit(lambda rows: jax.lax.scan(lambda c, x: (c, one(x)), 0, rows))(rows)
    assert np.array_equal(np.asarray(scanned), expected)


def test_traced_mistakes():
    q, k, v = inputs(DTYPES[0])
    with pytest.raises(TypeError, match="wanted a jax.Array"):
        jax.jit(lambda q: flashcore.attention(q, np.asarray(k), v))(q)
    # Errors that depend on the device come when the program runs, as JAX's own error.
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel: is 'fastest', wanted one of"):
        jax.jit(lambda q: flashcore.attention(q, k, v, kernel="fastest"))(q).block_until_ready()


@pytest.mark.skipif(GPU, reason="lengths are read on the CPU only")
def test_lengths_under_jit():
    q, k, v = inputs(DTYPES[0])
    lengths = jnp.array([99, 1], jnp.int32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="entry 0 is 99, wanted 0 to 53"):
        jax.jit(lambda n: flashcore.attention(q, k, v, seqlens_kv=n))(lengths).block_until_ready()


def test_outputs_that_cannot_be_written():
    q, k, v = inputs(DTYPES[0])
    for call in (flashcore.attention, jax.jit(flashcore.attention)):
        with pytest.raises(TypeError, match="out: is a jax.*, which is immutable"):
            call(q, k, v, out=q)
    with pytest.raises(TypeError, match="dq: is a jax.Array, which is immutable"):
        flashcore.attention_backward(q, q, k, v, dq=q)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_unsupported_on_the_gpu():
    x = jnp.ones((1, 4, 8, 584), jnp.float16)
    with pytest.raises(NotImplementedError, match="no kernel of this device"):
        flashcore.attention(x, x, x)


@differentiates
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 2.0}], ids=["plain", "more"])
def test_grad(dtype, options):
    """Gradients of grouped heads, a broadcast bias, sinks and slopes: grad, jit, checkpoint."""
    q, k, v = inputs(dtype)
    bias = jax.random.normal(jax.random.key(4), (1, 4, 1, 53))
    sinks, slopes = jnp.linspace(-1, 1, 4), jnp.linspace(0, 0.2, 4)
    weights = jax.random.normal(jax.random.key(5), (2, 4, 37, 64), dtype)

    def loss(q, k, v, bias, sinks, slopes):
        out = flashcore.attention(q, k, v, bias=bias, sinks=sinks, alibi_slopes=slopes, **options)
        return (out * weights).astype(jnp.float32).sum()

    arrays = (q, k, v, bias, sinks, slopes)
    each = tuple(range(6))
    host = {"bias": bias, "sinks": sinks, "alibi_slopes": slopes}
    expected = definition.attention(
        *(np.asarray(x, np.float64) for x in (q, k, v)),
        d_out=np.asarray(weights, np.float64),
        **{name: np.asarray(x) for name, x in host.items()},
        **options,
    )
    expected["d_bias"] = expected["d_bias"].sum((0, 2), keepdims=True)
    expected["d_alibi_slopes"] = expected["d_alibi_slopes"].sum(0)
    found = jax.grad(loss, each)(*arrays)
    for x, gradient, wanted in zip(arrays, found, expected.values(), strict=True):
        assert gradient.dtype == x.dtype
        gates.check_gradient(np.asarray(gradient, np.float32), wanted, dtype)
    for call in (
        jax.jit(jax.grad(loss, each)),
        jax.grad(jax.jit(loss), each),
        jax.grad(jax.checkpoint(loss), each),
    ):
        for one, other in zip(call(*arrays), found, strict=True):
            assert np.array_equal(np.asarray(one), np.asarray(other))


@differentiates
def test_grad_computes_what_is_needed(calls_of):
    q, k, v = inputs("float32")
    bias, sinks = jnp.ones((1, 4, 1, 53)), jnp.ones(4)
    mask, lengths = jnp.ones((1, 1, 37, 53), bool), jnp.array([53, 20], jnp.int32)
    from flashcore import _jax_ffi

    seen = calls_of(_jax_ffi, "compute_backward")

    def last():
        return seen[-1][0][1]

    def loss(q, sinks):
        out, lse = flashcore.attention(
            q, k, v, bias=bias, sinks=sinks, mask=mask, seqlens_kv=lengths, return_lse=True
        )
        return out.sum() + 0 * lse.sum()

    jax.grad(loss)(q, sinks)
    assert last().asked == ()
    assert "d_lse" in last().arrays
    jax.grad(loss, 1)(q, sinks)
    assert last().asked == ("d_sinks",)
    jax.grad(lambda q: flashcore.attention(q, k, v).sum())(q)
    assert "d_lse" not in last().arrays


@differentiates
def test_grad_of_the_lse_and_of_dropout():
    q, k, v = inputs("float32")
    d_lse = jax.random.normal(jax.random.key(6), (2, 4, 37))
    dropout = {"dropout_p": 0.3, "dropout_seed": 2**64 - 1, "dropout_offset": 3}

    def results(q, k, v):
        return flashcore.attention(q, k, v, return_lse=True, **dropout)

    (out, _), pullback = jax.vjp(results, q, k, v)
    found = pullback((out, d_lse))
    expected = flashcore.attention_backward(out, q, k, v, d_lse=d_lse, **dropout)
    for one, other in zip(found, expected[:3], strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))
    only_lse = jax.grad(lambda q: (results(q, k, v)[1] * d_lse).sum())(q)
    expected = flashcore.attention_backward(out * 0, q, k, v, d_lse=d_lse, **dropout)
    assert np.array_equal(np.asarray(only_lse), np.asarray(expected.dq))


@differentiates
def test_gradients_per_sample():
    q, k, v = inputs("float32")

    def loss(q, k, v):
        return (flashcore.attention(q[None], k[None], v[None]) ** 2).sum()

    found = jax.vmap(jax.grad(loss, (0, 1, 2)))(q, k, v)
    for i in range(2):
        for one, other in zip(found, jax.grad(loss, (0, 1, 2))(q[i], k[i], v[i]), strict=True):
            assert np.array_equal(np.asarray(one[i]), np.asarray(other))


def test_derivatives_that_there_are_not():
    q, k, v = inputs("float32")

    def loss(q):
        return flashcore.attention(q, k, v).sum()

    with pytest.raises(flashcore.UnsupportedError, match="gradients have no derivative"):
        jax.grad(lambda q: jax.grad(loss)(q).sum())(q)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (q,), (q,))
    with pytest.raises(flashcore.UnsupportedError, match="attention_backward: is traced by JAX"):
        jax.jit(lambda q: flashcore.attention_backward(q, q, q, q).dq)(q)


def with_four_devices(program, *arguments):
    """Runs a program in a process of its own, with four CPU devices."""
    four = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    run = python(pathlib.Path(__file__).with_name(program), *arguments, **four)
    assert run.returncode == 0, run.stdout + run.stderr


def test_sharded_arrays_stay_sharded():
    with_four_devices("sharded.py")


@pytest.mark.parametrize("algorithm", ["ring", "all_gather", "ulysses"])
@pytest.mark.parametrize("case", ["masks", "extras"])
def test_rows_over_devices(case, algorithm):
    with_four_devices("sharded_rows.py", f"{case}-{algorithm}")


@pytest.mark.parametrize("case", ["worlds", "rings", "mistakes"])
def test_more_of_rows_over_devices(case):
    with_four_devices("sharded_rows.py", case)
