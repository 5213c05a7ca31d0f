"""flashcore.attention_backward of NumPy arrays: against the definition, and finite differences."""

import definition
import gates
import numpy as np
import pytest
from test_attention import DTYPES, draw, inputs
from test_errors import message

import flashcore

OPTIONAL = {"d_bias": "bias", "d_sinks": "sinks", "d_alibi_slopes": "alibi_slopes"}


def asked_of(options):
    """Requests every optional gradient that the options have."""
    return {name: True for name, of in OPTIONAL.items() if of in options}


def expected_of(q, k, v, d_out, **options):
    """The definition's gradients, summed over broadcast dimensions."""
    found = definition.attention(q, k, v, d_out=d_out, **options)
    if "bias" in options:
        found["d_bias"] = definition.summed_like(found["d_bias"], options["bias"])
    if "alibi_slopes" in options:
        slopes = options["alibi_slopes"]
        shaped = definition.summed_like(found["d_alibi_slopes"], np.atleast_2d(slopes))
        found["d_alibi_slopes"] = shaped.reshape(slopes.shape)
    return {name: found[name] for name in ("dq", "dk", "dv", *asked_of(options))}


def check(q, k, v, **options):
    rng = np.random.default_rng(5)
    dtype = q.dtype.name
    out, lse = flashcore.attention(q, k, v, return_lse=True, **options)
    d_out, d_lse = draw(rng, *out.shape, dtype=dtype), draw(rng, *lse.shape)
    gradients = flashcore.attention_backward(
        d_out, q, k, v, out, lse, d_lse=d_lse, **options, **asked_of(options)
    )
    expected = expected_of(q, k, v, d_out, d_lse=d_lse, **options)
    for name, array in gradients._asdict().items():
        if name in expected:
            gates.check_gradient(array, expected[name], dtype)
        else:
            assert array is None
    assert gradients.dq.dtype == gradients.dk.dtype == gradients.dv.dtype == q.dtype
    # Without O and LSE, the call computes them.
    again = flashcore.attention_backward(
        d_out, q, k, v, d_lse=d_lse, **options, **asked_of(options)
    )
    for first, second in zip(gradients, again, strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_dense(rng, dtype, causal, heads):
    check(*inputs(rng, dtype, heads=heads), causal=causal)


# Options by name, each made from a generator, for B = 2, Hq = 4, Sq = 9, Skv = 11.
OPTIONS = {
    "none": lambda rng: {},
    "causal": lambda rng: {"causal": True},
    "top left": lambda rng: {"causal": True, "alignment": "top_left"},
    "given": lambda rng: {
        "causal": True,
        "alignment": "given",
        "causal_offsets": np.array([0, 3], np.int32),
    },
    "window": lambda rng: {"window": (3, 2)},
    "scale": lambda rng: {"softmax_scale": 0.3},
    "softcap": lambda rng: {"softcap": 1.5, "softmax_scale": 0.5},
    "mask": lambda rng: {"mask": rng.random((2, 1, 9, 11)) < 0.6},
    "bias": lambda rng: {"bias": draw(rng, 2, 4, 9, 11)},
    "broadcast bias": lambda rng: {"bias": draw(rng, 1, 4, 1, 11)},
    "slopes": lambda rng: {"alibi_slopes": rng.random(4).astype(np.float32)},
    "slopes of entries": lambda rng: {"alibi_slopes": rng.random((2, 4)).astype(np.float32)},
    "sinks": lambda rng: {"sinks": draw(rng, 4)},
    "lengths": lambda rng: {
        "seqlens_q": np.array([9, 4], np.int32),
        "seqlens_kv": np.array([6, 11], np.int32),
    },
    "no keys": lambda rng: {"seqlens_kv": np.array([0, 11], np.int32), "sinks": draw(rng, 4)},
}
OPTIONS["all"] = lambda rng: (
    {
        name: value
        for case in ("softcap", "mask", "broadcast bias", "slopes", "sinks", "lengths")
        for name, value in OPTIONS[case](rng).items()
    }
    | {"window": (8, None), "causal": True}
)
every_option = pytest.mark.parametrize("make", OPTIONS.values(), ids=OPTIONS)


def small(rng, dtype="float32"):
    return inputs(rng, dtype, lengths=(9, 11), dims=(16, 8))


@every_option
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_options(rng, make, dtype):
    check(*small(rng, dtype), **make(rng))


def of_the_reference(rng, make, dtype):
    """Returns its gradients in float64, and q, k, v, the options, and the results' gradients."""
    q, k, v = small(rng)
    options = make(rng)
    d_out, d_lse = rng.normal(size=(2, 4, 9, 8)), draw(rng, 2, 4, 9)
    asked = {"kernel": "reference", "grad_dtype": dtype, "d_lse": d_lse, **asked_of(options)}
    gradients = flashcore.attention_backward(d_out, q, k, v, **options, **asked)
    return gradients, (q, k, v), options, d_out, d_lse


@every_option
def test_reference_agrees_with_the_definition(rng, make):
    gradients, arrays, options, d_out, d_lse = of_the_reference(rng, make, "float64")
    expected = expected_of(*arrays, d_out, d_lse=d_lse, **options)
    for name, value in expected.items():
        array = getattr(gradients, name)
        assert array.dtype == np.float64
        assert np.allclose(array, value, rtol=1e-6, atol=1e-6)  # scalars are floats in C


@every_option
def test_finite_differences(rng, make):
    """Finite differences of the definition's forward pass, in float64, in random directions."""
    gradients, arrays, options, d_out, d_lse = of_the_reference(rng, make, np.float64)
    moving = dict(zip("qkv", arrays, strict=True))
    moving |= {of: options[of] for of in OPTIONAL.values() if of in options}
    fixed = {name: value for name, value in options.items() if name not in moving}
    if "seqlens_q" in options:  # later rows have no gradient
        d_lse[1, :, 4:] = 0

    def loss(at):
        out, lse = definition.attention(**at, **fixed)
        return (d_out * out).sum() + (d_lse * np.where(np.isfinite(lse), lse, 0)).sum()

    names = {"q": "dq", "k": "dk", "v": "dv"} | {of: name for name, of in OPTIONAL.items()}
    for name, array in moving.items():
        for _ in range(3):
            step = rng.normal(size=array.shape)
            ends = [loss(moving | {name: array + h * step}) for h in (1e-5, -1e-5)]
            slope = (ends[0] - ends[1]) / 2e-5
            along = (getattr(gradients, names[name]) * step).sum()
            assert np.isclose(slope, along, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("kernel", [None, "reference"])
def test_dropout(rng, kernel):
    """The mask is read from a forward pass whose values are the unit vectors."""
    q, k, v = inputs(rng, lengths=(9, 16), dims=(16, 16))
    dropout = {"dropout_p": 0.4, "dropout_seed": 3, "dropout_offset": 2**63}
    unit = np.broadcast_to(np.eye(16, dtype=np.float32), (2, 2, 16, 16))
    kept = (flashcore.attention(q, k, unit, **dropout) > 0) / 0.6
    assert 0.5 < kept.mean() < 1.5
    d_out = draw(rng, 2, 4, 9, 16)
    gradients = flashcore.attention_backward(d_out, q, k, v, kernel=kernel, **dropout)
    expected = definition.attention(q, k, v, d_out=d_out, kept=kept)
    for name in ("dq", "dk", "dv"):
        gates.check_gradient(getattr(gradients, name), expected[name], "float32")


def test_packed(rng):
    starts = np.array([0, 5, 5, 22], np.int32)
    q, k, v = draw(rng, 22, 4, 16), draw(rng, 22, 2, 16), draw(rng, 22, 2, 16)
    d_out = draw(rng, 22, 4, 16)
    sinks, bias = draw(rng, 4), draw(rng, 1, 4, 1, 17)
    gradients = flashcore.attention_backward(
        d_out,
        q,
        k,
        v,
        cu_seqlens_q=starts,
        cu_seqlens_kv=starts,
        max_seqlen_q=17,
        max_seqlen_kv=17,
        causal=True,
        sinks=sinks,
        bias=bias,
        d_sinks=True,
        d_bias=True,
    )
    d_sinks, d_bias = np.zeros(4), np.zeros((4, 17))
    for first, last in ((0, 5), (5, 22)):
        parts = [x[first:last].swapaxes(0, 1)[None] for x in (q, k, v, d_out)]
        found = definition.attention(
            *parts[:3],
            d_out=parts[3],
            causal=True,
            sinks=sinks,
            bias=bias[..., : last - first],
        )
        for name in ("dq", "dk", "dv"):
            part = getattr(gradients, name)[first:last].swapaxes(0, 1)[None]
            gates.check_gradient(part, found[name], "float32")
        d_sinks += found["d_sinks"]
        d_bias[:, : last - first] += found["d_bias"].sum(axis=(0, 2))
    gates.check_gradient(gradients.d_sinks, d_sinks, "float32")
    gates.check_gradient(gradients.d_bias[0, :, 0], d_bias, "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_in_float32(rng, dtype):
    q, k, v = small(rng, dtype)
    d_out = draw(rng, 2, 4, 9, 8, dtype=dtype)
    bias = draw(rng, 2, 4, 9, 11, dtype=dtype)
    wide = flashcore.attention_backward(
        d_out, q, k, v, bias=bias, d_bias=True, grad_dtype=np.float32
    )
    plain = flashcore.attention_backward(d_out, q, k, v, bias=bias, d_bias=True)
    for name in ("dq", "dk", "dv", "d_bias"):
        array = getattr(wide, name)
        assert array.dtype == np.float32
        assert np.array_equal(array.astype(q.dtype), getattr(plain, name))
    assert plain.d_bias.dtype == bias.dtype


def test_layouts(rng):
    """Gradients have their tensors' memory order, and may be written to parts of one buffer."""
    q, k, v = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in small(rng))
    d_out = draw(rng, 2, 4, 9, 8)
    gradients = flashcore.attention_backward(d_out, q, k, v)
    assert gradients.dq.strides == q.strides
    assert gradients.dk.strides == k.strides
    buffer = np.full((2, 11, 2, 16 + 8), np.nan, np.float32)
    dk, dv = buffer[..., :16].swapaxes(1, 2), buffer[..., 16:].swapaxes(1, 2)
    given = flashcore.attention_backward(d_out, q, k, v, dk=dk, dv=dv)
    assert given.dk is dk
    assert given.dv is dv
    for one, other in zip(given[:3], gradients[:3], strict=True):
        assert np.array_equal(one, other)
    d_sinks = np.full(4, np.nan, np.float32)
    found = flashcore.attention_backward(
        d_out, q, k, v, sinks=draw(rng, 4), d_sinks=d_sinks, d_bias=False
    )
    assert found.d_sinks is d_sinks
    assert np.isfinite(d_sinks).all()


def test_broadcast_inputs(rng):
    q, k, v = small(rng)
    d_out = draw(rng, 2, 4, 9, 8)
    one = np.broadcast_to(d_out[:, :1], d_out.shape)
    expected = flashcore.attention_backward(one.copy(), q, k, v)
    for x, y in zip(flashcore.attention_backward(one, q, k, v)[:3], expected[:3], strict=True):
        assert np.array_equal(x, y)


def test_rows_without_keys_and_padding_are_written(rng):
    q, k, v = small(rng)
    lengths = {
        "seqlens_q": np.array([9, 4], np.int32),
        "seqlens_kv": np.array([0, 6], np.int32),
    }
    d_out = draw(rng, 2, 4, 9, 8)
    d_out[0] = d_out[1, :, 4:] = np.nan
    given = {f"d{n}": np.full_like(x, np.nan) for n, x in (("q", q), ("k", k), ("v", v))}
    dq, dk, dv = flashcore.attention_backward(d_out, q, k, v, **given, **lengths)[:3]
    assert np.isfinite(dq).all()
    assert not dq[0].any()
    assert not dq[1, :, 4:].any()
    assert dq[1, :, :4].all()
    for gradient in (dk, dv):
        assert np.isfinite(gradient).all()
        assert not gradient[0].any()
        assert not gradient[1, :, 6:].any()


# Invalid calls.


@pytest.fixture
def x():
    return np.ones((1, 2, 4, 8), np.float32)


def refused(kind, *arguments, **options):
    return message(kind, flashcore.attention_backward, *arguments, **options)


INVALID = flashcore.InvalidArgumentError


@pytest.mark.parametrize("name", OPTIONAL)
def test_asking_for_gradients(x, name):
    text = refused(INVALID, x, x, x, x, **{name: True})
    assert text == f"{name}: is asked for, wanted it only with {OPTIONAL[name]}"
    text = refused(INVALID, x, x, x, x, **{name: np.zeros(2, np.float32)})
    assert text.startswith(f"{name}: is given, wanted it only with ")
    text = refused(flashcore.ArgumentTypeError, x, x, x, x, **{name: "yes"})
    assert text == f"{name}: is a str, wanted True, False or an array to write into"


def test_out_and_lse_come_together(x):
    out, lse = flashcore.attention(x, x, x, return_lse=True)
    text = refused(INVALID, x, x, x, x, out)
    assert text.startswith("lse: is None, wanted it with out")
    text = refused(INVALID, x, x, x, x, lse=lse)
    assert text.startswith("out: is None, wanted it with lse")


def test_shapes_strides_and_dtypes(x):
    out, lse = flashcore.attention(x, x, x, return_lse=True)
    half = x.astype(np.float16)
    for wrong, expected in [
        ({"d_out": x[..., :4]}, "d_out: shape is [1, 2, 4, 4], wanted out's = [1, 2, 4, 8]"),
        ({"d_out": x[0]}, "d_out: rank is 3, wanted 4 for out's"),
        ({"d_out": half}, "d_out: dtype is float16, wanted float32"),
        ({"d_out": np.ones((1, 2, 8, 4), np.float32).mT}, "d_out: stride of the last dimension"),
        ({"out": half}, "d_out: dtype is float32, wanted float16"),
        ({"lse": lse[..., :3]}, "lse: shape is [1, 2, 3], wanted [B, Hq, Sq] = [1, 2, 4]"),
        ({"lse": lse.astype(np.float16)}, "lse: dtype is float16, wanted one of float32, float64"),
        ({"d_lse": lse[..., :3]}, "d_lse: shape is [1, 2, 3], wanted [B, Hq, Sq] = [1, 2, 4]"),
        ({"d_lse": half[..., 0]}, "d_lse: dtype is float16, wanted one of float32, float64"),
        ({"dq": half}, "dq: dtype is float16, wanted float32"),
        ({"dk": x[..., :4].copy()}, "dk: shape is [1, 2, 4, 4], wanted k's = [1, 2, 4, 8]"),
        ({"dv": x}, "dv: pointer "),
        ({"dv": np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape)}, "dv: is read-only"),
        ({"grad_dtype": "float16"}, "grad_dtype: is float16, wanted one of float32, float64"),
        ({"grad_dtype": 5}, "grad_dtype: is 5, wanted one of float32, float64"),
    ]:
        given = {"d_out": x, "q": x, "k": x, "v": x, "out": out, "lse": lse} | wrong
        kind = flashcore.ArgumentTypeError if wrong == {"grad_dtype": 5} else INVALID
        assert refused(kind, **given).startswith(expected)


def test_what_has_no_backward_pass(x):
    import ml_dtypes

    small = x.astype(ml_dtypes.float8_e4m3fn)
    text = refused(INVALID, x, small, small, small)
    assert text == (
        "q: dtype is float8_e4m3fn, which has no backward pass, wanted float32, float16 or bfloat16"
    )
    lse = np.zeros(x.shape[:-1], np.float32)
    for d_out in (x, small):
        text = refused(INVALID, d_out, x, x, x, small, lse)
        assert text.startswith("out: dtype is float8_e4m3fn, which has no backward pass, wanted ")
    text = refused(flashcore.UnsupportedError, x, x, x, x, grad_dtype="float64", kernel="cpu_simd")
    assert "float64" in text
    text = refused(INVALID, x, x, x, x, kernel="fastest")
    assert text.startswith("kernel: is 'fastest', wanted one of ")
    with pytest.raises(TypeError, match="q_scale"):
        flashcore.attention_backward(x, x, x, x, q_scale=x)


@pytest.mark.parametrize(
    ("option", "value"),
    [("softcap", -1.0), ("dropout_p", 0.5), ("alignment", "middle"), ("causal_offset", 3)],
)
def test_options_are_checked(x, option, value):
    text = refused(INVALID, x, x, x, x, **{option: value})
    assert text.startswith(option.partition("_")[0])


def test_plans_are_kept(x, calls_of):
    flashcore.clear_plans()
    made = calls_of(flashcore._backward.BackwardPlan, "__init__")
    for _ in range(3):
        flashcore.attention_backward(x, x, x, x)
    assert len(made) == 1
    flashcore.attention_backward(x, x, x, x, causal=True)
    assert len(made) == 2
