"""flashcore.attention of NumPy arrays against the definition."""

import threading
import tracemalloc

import definition
import gates
import numpy as np
import pytest
from process import python

import flashcore

ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = ["float32", "float16", "bfloat16"]


def draw(rng, *shape, dtype="float32"):
    return rng.normal(size=shape).astype(getattr(ml_dtypes, dtype, dtype))


def inputs(rng, dtype="float32", batch=2, heads=(4, 2), lengths=(37, 53), dims=(32, 32)):
    return (
        draw(rng, batch, heads[0], lengths[0], dims[0], dtype=dtype),
        draw(rng, batch, heads[1], lengths[1], dims[0], dtype=dtype),
        draw(rng, batch, heads[1], lengths[1], dims[1], dtype=dtype),
    )


def check(q, k, v, **options):
    out, lse = flashcore.attention(q, k, v, return_lse=True, **options)
    expected, expected_lse = definition.attention(q, k, v, **options)
    dtype = q.dtype.name
    assert out.dtype == q.dtype
    assert lse.dtype == np.float32
    gates.check(out, expected, dtype)
    gates.check_lse(lse, expected_lse, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_dense(rng, dtype, causal, heads):
    check(*inputs(rng, dtype, heads=heads), causal=causal)


@pytest.mark.parametrize("dims", [(8, 8), (64, 128), (192, 128), (40, 24), (1, 1)])
def test_head_dims(rng, dims):
    check(*inputs(rng, dims=dims))


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("lengths", [(16, 16), (9, 33), (33, 9), (1, 50)])
def test_causal_alignment(rng, alignment, lengths):
    check(*inputs(rng, lengths=lengths), causal=True, alignment=alignment)


def test_given_offset(rng):
    check(*inputs(rng), causal=True, alignment="given", causal_offset=5)


def test_given_offsets(rng):
    offsets = np.array([-3, 20], np.int32)
    check(*inputs(rng), causal=True, alignment="given", causal_offsets=offsets)


@pytest.mark.parametrize("window", [(4, 4), (0, 0), (-1, 3), (7, None), [5, 2], None])
def test_window(rng, window):
    q, k, v = inputs(rng)
    out = flashcore.attention(q, k, v, window=window)
    expected, _ = definition.attention(q, k, v, window=(-1, -1) if window is None else window)
    gates.check(out, expected, "float32")


@pytest.mark.parametrize("shape", [(2, 4, 37, 53), (1, 1, 37, 53), (2, 1, 1, 53), (1, 4, 37, 1)])
def test_bias_and_mask(rng, shape):
    check(*inputs(rng), bias=draw(rng, *shape), mask=rng.random(shape) < 0.7)


def test_alibi_softcap_and_scale(rng):
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    check(*inputs(rng), alibi_slopes=slopes, softcap=5.0, softmax_scale=0.3)


def test_sinks(rng):
    check(*inputs(rng), sinks=draw(rng, 4), causal=True, window=(3, 0))


def test_sequence_lengths(rng):
    lengths_q, lengths_kv = np.array([37, 12], np.int32), np.array([40, 0], np.int32)
    check(*inputs(rng), seqlens_q=lengths_q, seqlens_kv=lengths_kv, causal=True)


def test_packed(rng):
    lengths_q, lengths_kv = [5, 0, 17], [9, 4, 17]
    starts_q = np.cumsum([0, *lengths_q]).astype(np.int32)
    starts_kv = np.cumsum([0, *lengths_kv]).astype(np.int32)
    q, k, v = draw(rng, 22, 4, 16), draw(rng, 30, 2, 16), draw(rng, 30, 2, 16)
    out, lse = flashcore.attention(
        q,
        k,
        v,
        cu_seqlens_q=starts_q,
        cu_seqlens_kv=starts_kv,
        max_seqlen_q=17,
        max_seqlen_kv=17,
        causal=True,
        return_lse=True,
    )
    assert out.shape == (22, 4, 16)
    assert lse.shape == (22, 4)
    for b in range(3):
        rows, keys = (slice(s[b], s[b + 1]) for s in (starts_q, starts_kv))
        parts = (x.transpose(1, 0, 2)[None] for x in (q[rows], k[keys], v[keys]))
        expected, expected_lse = definition.attention(*parts, causal=True)
        gates.check(out[rows].transpose(1, 0, 2)[None], expected, "float32")
        gates.check_lse(lse[rows].T[None], expected_lse, "float32")


def test_fp8_with_scales(rng):
    q, k, v = (x.astype(ml_dtypes.float8_e4m3fn) for x in inputs(rng))
    q_scale, k_scale, v_scale = (rng.uniform(0.5, 2, (1, h)).astype("f4") for h in (4, 2, 2))
    out = flashcore.attention(
        q,
        k,
        v,
        q_scale=q_scale,
        k_scale=k_scale[:, :, None],
        v_scale=v_scale[:, :, None],
        out_dtype="float32",
    )
    expected, _ = definition.attention(
        q.astype(float) * q_scale[:, :, None, None],
        k.astype(float) * k_scale[:, :, None, None],
        v.astype(float) * v_scale[:, :, None, None],
    )
    assert out.dtype == np.float32
    error = np.abs(out - expected)
    assert (error / np.maximum(1, np.abs(expected))).max() <= 6e-2
    assert np.linalg.norm(error) <= 3e-2 * np.linalg.norm(expected)


def test_strided_inputs_are_read_in_place(rng):
    q, k, v = inputs(rng, batch=1)
    expected = flashcore.attention(q, k, v)
    bshd = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    out = flashcore.attention(*bshd)
    assert np.array_equal(out, expected)
    assert out.strides == bshd[0].strides
    backwards = [np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in (q, k, v)]
    assert np.array_equal(flashcore.attention(*backwards), expected)
    one_head = np.broadcast_to(k[:, :1], k.shape)
    copied = flashcore.attention(q, one_head.copy(), v)
    assert np.array_equal(flashcore.attention(q, one_head, v), copied)


def test_nothing_is_copied(rng):
    q, k, v = inputs(rng, batch=1, lengths=(8, 4096), dims=(64, 64))
    flashcore.attention(q, k, v, kernel="reference", threads=1)
    tracemalloc.start()
    flashcore.attention(q, k, v, kernel="reference", threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < k.nbytes / 4


def test_read_only_inputs_will_do(rng):
    q, k, v = inputs(rng)
    expected = flashcore.attention(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    assert np.array_equal(flashcore.attention(q, k, v), expected)


def test_given_outputs(rng):
    q, k, v = inputs(rng)
    out, lse = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32)
    got = flashcore.attention(q, k, v, out=out, out_lse=lse, return_lse=True)
    assert got[0] is out
    assert got[1] is lse
    expected = flashcore.attention(q, k, v, return_lse=True)
    assert np.array_equal(out, expected[0])
    assert np.array_equal(lse, expected[1])


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32")])
def test_out_dtype(rng, dtype):
    q, k, v = inputs(rng, "bfloat16")
    out = flashcore.attention(q, k, v, out_dtype=dtype)
    assert out.dtype == np.float32
    gates.check(out, definition.attention(q, k, v)[0], "bfloat16")


def test_dropout(rng):
    q, k, v = inputs(rng)
    first = flashcore.attention(q, k, v, dropout_p=0.5, dropout_seed=2**64 - 1)
    again = flashcore.attention(q, k, v, dropout_p=0.5, dropout_seed=2**64 - 1)
    other = flashcore.attention(q, k, v, dropout_p=0.5, dropout_seed=3, dropout_offset=7)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not flashcore.attention(q, k, v, dropout_p=1.0, dropout_seed=0).any()
    # An average over seeds approximates the result without dropout.
    mean = np.mean(
        [flashcore.attention(q, k, v, dropout_p=0.2, dropout_seed=s) for s in range(200)], axis=0
    )
    assert np.abs(mean - flashcore.attention(q, k, v)).max() < 0.25


def test_offered_kernels(rng):
    q, k, v = inputs(rng)
    verdicts = flashcore.explain(q, k, v, causal=True)
    names = [verdict["kernel"] for verdict in verdicts]
    assert {"cpu_simd", "reference"} <= set(names)
    assert verdicts[0]["refusal"] == ""
    assert verdicts[0]["declines"] == verdicts[0]["note"] == ""
    assert verdicts[0]["automatic"]
    assert [verdict["kernel"] for verdict in verdicts if verdict["chosen"]] == ["cpu_simd"]
    named = flashcore.explain(q, k, v, kernel="reference")
    assert [verdict["kernel"] for verdict in named if verdict["chosen"]] == ["reference"]
    naive = next(verdict for verdict in verdicts if verdict["kernel"] == "naive")
    assert "float32" in naive["refusal"]


def test_batch_invariance(rng):
    q, k, v = inputs(rng)
    whole = flashcore.attention(q, k, v, batch_invariant=True)
    alone = flashcore.attention(q[1:], k[1:], v[1:], batch_invariant=True)
    assert np.array_equal(whole[1:], alone)


def test_threads_share_plans(rng):
    q, k, v = inputs(rng)
    expected = flashcore.attention(q, k, v)
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(flashcore.attention(q, k, v), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_problems_than_plans_are_kept(rng):
    from flashcore._plan import Cache, cache

    limit, cache.limit = cache.limit, 8
    try:
        flashcore.clear_plans()
        for length in range(1, 40):
            check(*inputs(rng, lengths=(1, length)))
        assert len(cache.plans) <= 8
    finally:
        cache.limit = limit
    assert Cache().limit == limit


def test_version_and_devices():
    assert flashcore.__version__ == flashcore.version() == flashcore.build_info()["version"]
    assert flashcore.devices()[0]["kind"] == "cpu"


def test_show_config(capsys):
    flashcore.show_config()
    printed = capsys.readouterr().out
    assert f"flashcore {flashcore.__version__}" in printed
    assert "float32: cpu_simd" in printed
    assert f"numpy {np.__version__}" in printed
    assert python("-m", "flashcore").stdout == printed
