"""quantize against its definition in docs/semantics.md, and its results as inputs of attention."""

import ml_dtypes
import numpy as np
import pytest

import flashcore

TYPES = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wide", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("scales", "block", "axes"),
    [
        ("tensor", None, (0, 1, 2, 4, 3)),
        ("entry", None, (1, 2, 4, 3)),
        ("head", None, (2, 4, 3)),
        ("head", 0, (2, 4, 3)),
        ("head", 5, (4, 3)),
        ("entry", 1, (1, 4, 3)),
    ],
)
def test_is_its_definition(dtype, wide, scales, block, axes):
    x = normal(2, 3, 20, 24, dtype=wide)
    found = flashcore.quantize(x, dtype, scales=scales, block=block)
    wanted_rows = block or 20
    blocks = x.astype(np.float32).reshape(2, 3, 20 // wanted_rows, wanted_rows, 24)
    amax = np.abs(blocks).max(axis=axes, keepdims=True)
    scale = amax / np.float32(TYPES[dtype])
    values = (blocks / scale).astype(np.dtype(getattr(ml_dtypes, dtype))).reshape(x.shape)
    assert found.mean is None
    assert found.values.dtype == values.dtype
    np.testing.assert_array_equal(found.values.view(np.uint8), values.view(np.uint8))
    np.testing.assert_array_equal(found.scale.ravel(), scale.ravel())
    assert found.scale.ndim == (2 if block is None else 3)


def test_goes_straight_into_attention():
    q, k, v = normal(2, 4, 50, 64), normal(2, 2, 90, 64, seed=1), normal(2, 2, 90, 64, seed=2)
    k += 20 * (np.arange(64) % 4 == 0)
    want, want_lse = flashcore.attention(q, k, v, causal=True, return_lse=True)

    def error(smooth):
        q8, k8, v8 = (
            flashcore.quantize(q),
            flashcore.quantize(k, block=32, smooth=smooth),
            flashcore.quantize(v, block=32),
        )
        o, lse = flashcore.attention(
            q8.values,
            k8.values,
            v8.values,
            q_scale=q8.scale,
            k_scale=k8.scale,
            v_scale=v8.scale,
            kv_scale_block=32,
            causal=True,
            out_dtype="float32",
            return_lse=True,
        )
        if smooth:
            lse = lse + np.einsum("bhsd,bhd->bhs", q, np.repeat(k8.mean, 2, axis=1)) / 8
            np.testing.assert_allclose(lse, want_lse, atol=0.5)
        return np.linalg.norm(o - want) / np.linalg.norm(want)

    assert error(True) < 0.06
    assert error(False) > 2 * error(True)


COLUMNS = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]


def test_transposed_v_is_what_attention_takes():
    q, k, v = (
        flashcore.quantize(normal(2, heads, rows, 64, seed=seed))
        for heads, rows, seed in ((4, 50, 0), (2, 90, 1), (2, 90, 2))
    )
    stored = flashcore.transpose_v(v.values)
    assert stored.shape == (2, 2, 64, 128)
    assert stored.dtype == v.values.dtype
    padded = np.zeros((2, 2, 128, 64), np.uint8)
    padded[:, :, :90] = v.values.view(np.uint8)
    want = padded.reshape(2, 2, 8, 16, 64)[:, :, :, COLUMNS].reshape(2, 2, 128, 64)
    np.testing.assert_array_equal(stored.view(np.uint8), want.swapaxes(2, 3))
    scales = {"q_scale": q.scale, "k_scale": k.scale[..., None], "v_scale": v.scale[..., None]}
    scales |= {"causal": True, "out_dtype": "float32"}
    want = flashcore.attention(q.values, k.values, v.values, **scales)
    found = flashcore.attention(q.values, k.values, stored, v_transposed=True, **scales)
    np.testing.assert_array_equal(found, want)
    assert flashcore.transpose_v(v.values, columns=384).shape == (2, 2, 64, 384)


def test_transposed_v_refuses():
    v = flashcore.quantize(normal(1, 2, 200, 16)).values
    with pytest.raises(flashcore.InvalidArgumentError, match="v_out: shape .* 128 columns"):
        flashcore.transpose_v(v, columns=128)
    with pytest.raises(flashcore.InvalidArgumentError, match="v: dtype is float32, wanted"):
        flashcore.transpose_v(normal(1, 2, 200, 16))
    with pytest.raises(flashcore.InvalidArgumentError, match="v: shape .* wanted 4"):
        flashcore.transpose_v(v[0])
    x = normal(1, 2, 128, 16)
    with pytest.raises(flashcore.InvalidArgumentError, match="v_transposed: is true with a v of"):
        flashcore.attention(x, x, x, v_transposed=True)
    with pytest.raises(flashcore.ArgumentTypeError, match="v_transposed"):
        flashcore.attention(v, v, v, v_transposed="yes")


def test_packed_rows_and_lengths():
    x = normal(30, 3, 16)
    starts = np.array([0, 10, 10, 30], np.int32)
    found = flashcore.quantize(x, block=8, cu_seqlens=starts, max_seqlen=20, smooth=True)
    assert found.scale.shape == (3, 3, 3)
    one = flashcore.quantize(np.ascontiguousarray(x[10:].transpose(1, 0, 2))[None], block=8)
    assert found.mean.shape == (3, 3, 16)
    np.testing.assert_allclose(found.mean[2], x[10:].mean(axis=0), atol=1e-6)
    assert one.scale.shape == (1, 3, 3)
    np.testing.assert_array_equal(found.scale[1], 1)

    padded = normal(2, 3, 20, 16)
    padded[0, :, 12:] = np.nan
    seqlens = np.array([12, 20], np.int32)
    short = flashcore.quantize(padded, seqlens=seqlens)
    whole = flashcore.quantize(np.ascontiguousarray(padded[:1, :, :12]))
    np.testing.assert_array_equal(short.scale[:1], whole.scale)
    np.testing.assert_array_equal(short.values[0, :, 12:].astype(np.float32), 0)


def test_keeps_the_order_of_memory():
    x = normal(2, 20, 3, 16).transpose(0, 2, 1, 3)
    values = flashcore.quantize(x).values
    assert values.transpose(0, 2, 1, 3).flags.c_contiguous
    dense = flashcore.quantize(np.ascontiguousarray(x)).values
    np.testing.assert_array_equal(values.view(np.uint8), dense.view(np.uint8))


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"dtype": "float16"}, "dtype: is float16, wanted one of float8_e4m3fn, float8_e5m2"),
        ({"scales": "row"}, "scales: is 'row', wanted 'tensor', 'entry' or 'head'"),
        ({"block": -1}, "block: is -1, wanted 0 to"),
        ({"max_seqlen": 7}, "max_seqlen: is 7, wanted 0 to 0"),
        ({"seqlens": np.array([5], np.int32)}, "seqlens: shape is [1]"),
        ({"seqlens": np.array([5, 21], np.int32)}, "seqlens: entry 1 is 21, wanted 0 to 20"),
        ({"cu_seqlens": np.array([0, 2], np.int32)}, "x: shape [2, 3, 20, 16] has rank 4"),
        ({"threads": -1}, "threads: is -1"),
    ],
)
def test_refuses_in_one_sentence(keywords, sentence):
    with pytest.raises(flashcore.InvalidArgumentError) as caught:
        flashcore.quantize(normal(2, 3, 20, 16), **keywords)
    assert sentence in str(caught.value)


def test_refuses_other_types():
    with pytest.raises(flashcore.InvalidArgumentError, match="x: dtype is float64, wanted one of"):
        flashcore.quantize(normal(2, 3, 20, 16, dtype=np.float64))
    with pytest.raises(flashcore.ArgumentTypeError, match="smooth: "):
        flashcore.quantize(normal(2, 3, 20, 16), smooth="k")
    with pytest.raises(flashcore.ArgumentTypeError, match="x: "):
        flashcore.quantize([1.0])


def test_takes_torch_tensors():
    torch = pytest.importorskip("torch")
    x = normal(1, 2, 20, 16)
    found = flashcore.quantize(torch.from_numpy(x), block=4, smooth=True)
    wanted = flashcore.quantize(x, block=4, smooth=True)
    assert found.values.dtype == torch.float8_e4m3fn
    np.testing.assert_array_equal(
        found.values.view(torch.uint8).numpy(), wanted.values.view(np.uint8)
    )
    np.testing.assert_array_equal(found.scale.numpy(), wanted.scale)
    np.testing.assert_array_equal(found.mean.numpy(), wanted.mean)
