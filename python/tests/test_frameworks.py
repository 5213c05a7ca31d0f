"""The arrays of every framework: the same results, gradients and refusals as with NumPy's.

Under PyTorch (torch) also by its operator and autograd, under JAX also traced.
"""

import definition
import gates
import numpy as np
import pytest
from frameworks import TorchOperator, Way, each_way, each_way_of_fp8
from test_attention import DTYPES, draw, inputs
from test_backward import OPTIONS
from test_fp8 import F8, SCALE, fp8, mixed, mixes
from test_fp8 import inputs as inputs_of_fp8

import flashcore
from flashcore._gradients import differentiates
from flashcore._layout import CODES
from flashcore._library import CUDA

STARTS = np.array([0, 5, 5, 22], np.int32)
# For the forward pass with both of its results, and for the gradients.
CASES = OPTIONS | {
    "numpy's numbers": lambda rng: {"causal": np.True_, "softmax_scale": np.float32(0.1)},
    "dropout": lambda rng: {"dropout_p": 0.3, "dropout_seed": 5, "dropout_offset": 2**63},
    "packed": lambda rng: {"cu_seqlens_q": STARTS, "cu_seqlens_kv": STARTS, "causal": True},
}
Q, KV = (2, 4, 37, 64), (2, 2, 53, 64)


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def same(actual, expected):
    return actual.dtype == expected.dtype and actual.tobytes() == expected.tobytes()


@each_way
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_passes(rng, way, case, dtype):
    """As with NumPy, bit for bit on a CPU: every way ends in the same kernel."""
    if way.on_gpu and not differentiates((CUDA, 0), CODES["float16"], 64, 64):
        pytest.skip("the GPU has no backward pass")
    dims = (64, 64) if way.on_gpu else (16, 8)
    options = CASES[case](rng)
    if case == "packed":
        q, k, v = (draw(rng, 22, heads, 64, dtype=dtype) for heads in (4, 2, 2))
    else:
        q, k, v = inputs(rng, dtype, lengths=(9, 11), dims=dims)
    d_out, d_lse = draw(rng, *q.shape[:-1], v.shape[-1], dtype=dtype), draw(rng, *q.shape[:-1])
    given = {"q": q, "k": k, "v": v, **options}
    before = {name: x.copy() for name, x in given.items() if isinstance(x, np.ndarray)}
    found = way.gradients(d_out, d_lse, **given)
    found["out"], found["lse"] = way.run(flashcore.attention, **given, return_lse=True)
    for name, old in before.items():
        assert same(given[name], old), "an input has changed"
    if way.on_gpu:  # the gates are for results of the rounded inputs in float32
        given |= {name: given[name].astype(np.float32) for name in "qkv"}
        d_out = d_out.astype(np.float32)
    expected = Way(None).gradients(d_out, d_lse, **given)
    expected["out"], expected["lse"] = flashcore.attention(**given, return_lse=True)
    assert found.keys() == expected.keys()
    for name, x in found.items():
        if not way.on_gpu:
            assert same(x, expected[name])
        elif name == "lse":
            gates.check_lse(x, expected[name], dtype)
        else:
            check = gates.check if name == "out" else gates.check_gradient
            check(x, expected[name], dtype)


@each_way
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_strided_inputs(rng, way, dtype):
    """Parts of one [B, S, 3 * H * D] buffer."""
    buffer = rng.normal(size=(2, 37, 3, 4, 64)).astype(dtype)
    q, k, v = buffer.transpose(2, 0, 3, 1, 4)
    out = way.run(flashcore.attention, q=q, k=k, v=v)
    gates.check(out, flashcore.attention(*(x.astype(np.float32) for x in (q, k, v))), dtype)
    if not way.on_gpu:
        assert same(out, flashcore.attention(q, k, v))


@each_way
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shapes", definition.EMPTY.values(), ids=definition.EMPTY)
def test_sizes_of_zero(way, shapes, transposed):
    """In both passes, for any strides of an array without elements."""
    q, kv = (
        ones(*shape[::-1]).T if transposed and 0 in shape else ones(*shape) for shape in shapes
    )
    out, lse = way.run(flashcore.attention, q=q, k=kv, v=kv, return_lse=True)
    assert out.shape == q.shape
    assert not out.any()
    assert np.isneginf(lse).all()
    found = way.gradients(np.array(out), np.zeros(lse.shape, np.float32), q=q, k=kv, v=kv)
    for name, of in (("q", q), ("k", kv), ("v", kv)):
        assert found[name].shape == of.shape
        assert not found[name].any()


@each_way_of_fp8
@mixes
def test_every_mix_of_fp8(way, names):
    q, k, v = mixed(names)[0]
    expected = flashcore.attention(q, k, v, out_dtype="float32")
    out = way.run(flashcore.attention, q=q, k=k, v=v, out_dtype=way.dtype("float32"))
    if way.on_gpu:
        np.testing.assert_allclose(out, expected, rtol=0.05, atol=0.05)
    else:
        assert same(out, expected)


@each_way_of_fp8
@fp8
def test_out_in_fp8(way, name):
    """With scales, and with the largest values beside it."""
    if way.on_gpu:
        pytest.skip("no kernel of a GPU has an O of fp8 for these shapes")
    given = dict(zip("qkv", (x.astype(F8[name]) for x in inputs_of_fp8()), strict=True))
    given |= {"o_scale": SCALE, "k_scale": np.array([[[0.5], [2.0]]], np.float32)}
    given |= {"return_lse": True, "return_amax": True, "return_max_logit": True}
    found = way.run(flashcore.attention, **given, out_dtype=way.dtype(name))
    expected = flashcore.attention(**given, out_dtype=name)
    assert found[0].dtype == F8[name]
    for x, y in zip(found, expected, strict=True):
        assert same(x, y)


@each_way_of_fp8
@fp8
def test_no_gradients_of_fp8(way, name):
    given = dict(zip("qkv", (x.astype(F8[name]) for x in inputs_of_fp8()), strict=True))
    d_out, d_lse = ones(2, 4, 9, 16).astype(F8[name]), ones(2, 4, 9)
    with pytest.raises(flashcore.InvalidArgumentError) as caught:
        way.gradients(d_out, d_lse, **given)
    assert str(caught.value).startswith(f"q: dtype is {name}, which has no backward pass, wanted")


# What is wrong, and the beginning of the sentence.
MISTAKES = {
    "shape": ({"k": ones(1, 2, 53, 64)}, ValueError, "k: shape is [1, 2, 53, 64], wanted"),
    "rank": ({"v": ones(1, 2, 2, 53, 64)}, ValueError, "v: shape [1, 2, 2, 53, 64] has rank 5"),
    "dtype": ({"q": ones(*Q, dtype="int32")}, ValueError, "q: dtype is int32, wanted one of"),
    "dtypes": ({"k": ones(*KV, dtype="float16")}, ValueError, "k: dtype is float16, wanted q's"),
    "mask": ({"mask": ones(1, 1, 37, 53)}, ValueError, "mask: dtype is float32, wanted bool;"),
    "lengths": ({"seqlens_kv": ones(2)}, ValueError, "seqlens_kv: dtype is float32, wanted int32"),
    "option": ({"softcap": -1.0}, ValueError, "softcap: is -1"),
    "window": ({"window": 7}, TypeError, "window: is an int, wanted"),
    "flag": ({"deterministic": "no"}, TypeError, "deterministic: is a str, wanted True or False"),
}


@each_way
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(way, mistake):
    changes, kind, sentence = MISTAKES[mistake]
    if kind is TypeError and isinstance(way, TorchOperator):
        pytest.skip("PyTorch checks the types of an operator's options")
    given = {"q": ones(*Q), "k": ones(*KV), "v": ones(*KV)} | changes
    with pytest.raises(kind) as caught:
        way.run(flashcore.attention, **given)
    assert isinstance(caught.value, flashcore.Error)
    assert str(caught.value).startswith(sentence)


@each_way
def test_arrays_of_another_framework(way):
    """As k, and as an optional array; NumPy's own with those of DLPack, and the other way round."""
    x = ones(*Q)
    other = x if type(way.array(x)) is not np.ndarray else memoryview(x)
    for name in ("k", "mask"):
        arrays = {of: way.array(x) for of in "qkv" if of != name}
        with pytest.raises(flashcore.ArgumentTypeError) as caught:
            way.call(flashcore.attention, arrays, {name: other})
        assert str(caught.value).startswith(f"{name}: is a ")
