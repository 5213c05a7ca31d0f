"""fp8 inputs and outputs: scales, and the largest values. test_frameworks.py has other arrays."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import flashcore

F8 = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
SCALE = np.array([[0.25, 1.0, 0.01, 3e-6]], np.float32)
fp8 = pytest.mark.parametrize("name", F8)


def inputs(dtype="float32", batch=2, heads=(4, 2), lengths=(9, 21), dim=16):
    rng = np.random.default_rng(5)
    shapes = ((batch, heads[0], lengths[0], dim), *[(batch, heads[1], lengths[1], dim)] * 2)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def stored(exact, name, scale=SCALE):
    """The contents of an fp8 O; e5m2 of ml_dtypes has infinities, which O does not use."""
    quotient = exact / scale[..., None, None]
    return np.clip(quotient, -LARGEST[name], LARGEST[name]).astype(F8[name])


def check_amax(amax_o, amax_s, exact, probabilities=None):
    np.testing.assert_allclose(amax_o, np.abs(exact).max((2, 3)), rtol=1e-6)
    assert amax_s.dtype == np.float32
    assert amax_s.shape == exact.shape[:2]
    if probabilities is not None:
        np.testing.assert_allclose(amax_s, probabilities.max((2, 3)), rtol=1e-4)


@fp8
def test_output_with_a_scale_and_the_largest_values(name):
    q, k, v = inputs()
    exact = flashcore.attention(q, k, v)
    out, lse, amax_o, amax_s = flashcore.attention(
        q, k, v, out_dtype=F8[name], o_scale=SCALE, return_lse=True, return_amax=True
    )
    assert out.dtype == F8[name]
    assert np.array_equal(out.view(np.uint8), stored(exact, name).view(np.uint8))
    scores = np.einsum("bhid,bhjd->bhij", q, k.repeat(2, axis=1)) / 4
    check_amax(amax_o, amax_s, exact, np.exp(scores - lse[..., None]))
    again = np.empty_like(out)
    assert flashcore.attention(q, k, v, o_scale=SCALE, out=again) is again
    assert np.array_equal(again.view(np.uint8), out.view(np.uint8))
    without = flashcore.attention(q, k, v, return_amax=True)
    assert len(without) == 3
    check_amax(*without[1:], exact)
    out, max_logit = flashcore.attention(q, k, v, return_max_logit=True)
    assert np.array_equal(out, exact)
    assert max_logit.dtype == np.float32
    np.testing.assert_allclose(max_logit, scores.max((2, 3)), rtol=1e-5)
    empty = flashcore.attention(q, k[:, :, :0], v[:, :, :0], return_max_logit=True)
    assert np.all(empty[1] == -np.inf)


def test_packed_and_cached():
    q, k, v = (x.swapaxes(1, 2).reshape(-1, x.shape[1], 16) for x in inputs(lengths=(9, 9)))
    starts = np.array([0, 4, 18], np.int32)
    packed = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts}
    exact = flashcore.attention(q, k, v, **packed)
    out, amax_o, _ = flashcore.attention(
        q, k, v, **packed, out_dtype="float8_e4m3fn", o_scale=SCALE, return_amax=True
    )
    parts = [exact[first:last] for first, last in itertools.pairwise(starts)]
    np.testing.assert_allclose(amax_o, [np.abs(x).max((0, 2)) for x in parts], rtol=1e-6)
    assert np.array_equal(
        out.view(np.uint8),
        stored(exact[None].swapaxes(1, 2), "float8_e4m3fn")[0].swapaxes(0, 1).view(np.uint8),
    )
    q, k, v = inputs()
    small = [x.astype(ml_dtypes.float8_e5m2) for x in (k, v)]
    exact = flashcore.decode(q, *small)
    out, lse, amax_o, amax_s = flashcore.decode(
        q,
        *small,
        out_dtype="float8_e5m2",
        o_scale=SCALE,
        return_lse=True,
        return_amax=True,
    )
    assert lse.shape == q.shape[:3]
    assert np.array_equal(out.view(np.uint8), stored(exact, "float8_e5m2").view(np.uint8))
    check_amax(amax_o, amax_s, exact)


MIXES = list(itertools.product(F8, repeat=3))
mixes = pytest.mark.parametrize("names", MIXES, ids="-".join)


def mixed(names):
    """Returns q, k and v with a dtype each, and the same numbers in float32."""
    given = [x.astype(F8[name]) for x, name in zip(inputs(), names, strict=True)]
    return given, [x.astype(np.float32) for x in given]


@mixes
def test_each_of_q_k_and_v_has_its_own_type(names):
    given, wide = mixed(names)
    out, lse = flashcore.attention(*given, out_dtype="float32", return_lse=True)
    exact, exact_lse = flashcore.attention(*wide, return_lse=True)
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_caches_of_two_types(dtype):
    given, wide = mixed(["float8_e4m3fn", "float8_e4m3fn", "float8_e5m2"])
    q = inputs(dtype)[0]
    out = flashcore.decode(q, *given[1:], out_dtype="float32")
    exact = flashcore.decode(q.astype(np.float32), *wide[1:])
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)


def test_types_that_do_not_go_together():
    q, k, v = mixed(["float8_e4m3fn", "float8_e5m2", "float8_e5m2"])[0]
    half = v.astype(np.float16)
    for tensors, sentence in (
        ((q, half, half), "k: dtype is float16, wanted q's float8_e4m3fn, or other fp8"),
        ((q, k, half), "v: dtype is float16, wanted k's float8_e5m2, or other fp8"),
        ((half, half, v), "v: dtype is float8_e5m2, wanted k's float16"),
    ):
        with pytest.raises(flashcore.InvalidArgumentError, match=sentence):
            flashcore.attention(*tensors)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"o_scale": SCALE}, "o_scale: is present with an out of float32, wanted it only with fp8"),
        ({"out_dtype": "float8_e5m2", "o_scale": SCALE[:, :2]}, "o_scale: shape is"),
        (
            {"out_dtype": "float8_e5m2", "o_scale": SCALE * 0},
            "o_scale: element .0, 0. is 0, wanted",
        ),
        (
            {"out_dtype": "float8_e5m2", "o_scale": -SCALE},
            "o_scale: element .0, 0. is -0.25, wanted",
        ),
        ({"out_dtype": "float8_e5m2", "o_scale": SCALE.astype("f8")}, "o_scale: dtype is float64"),
    ],
)
def test_bad_scales_are_refused(options, sentence):
    with pytest.raises(flashcore.InvalidArgumentError, match=sentence):
        flashcore.attention(*inputs(), **options)


def test_explained():
    options = {"out_dtype": "float8_e4m3fn", "o_scale": SCALE, "return_amax": True}
    chosen = [x for x in flashcore.explain(*inputs(), **options) if x["chosen"]]
    assert [x["kernel"] for x in chosen] == ["cpu_simd"]


def torch_inputs(name):
    torch = pytest.importorskip("torch")
    return torch, [torch.from_numpy(x).to(getattr(torch, name)) for x in inputs()]


def bits(tensor):
    import torch

    return tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor


@fp8
@pytest.mark.compiles
def test_torch_compiled_and_meta(name):
    """In one graph: the same bits as eagerly."""
    torch, (q, k, v) = torch_inputs(name)
    scale = torch.from_numpy(SCALE)
    k_scale = torch.tensor([0.5, 2.0])[None, :, None]

    def call(q, k, v, scale):
        return flashcore.attention(
            q,
            k,
            v,
            k_scale=k_scale,
            o_scale=scale,
            return_lse=True,
            return_amax=True,
            return_max_logit=True,
        )

    eager = call(q, k, v, scale)
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True)(q, k, v, scale)
    for x, y in zip(eager, compiled, strict=True):
        assert torch.equal(bits(x), bits(y))
    with torch.device("meta"):
        shapes = call(*(torch.empty_like(x, device="meta") for x in (q, k, v)), scale.to("meta"))
    assert [x.shape for x in shapes] == [x.shape for x in eager]


@fp8
def test_torch_has_no_gradients_of_an_out_in_fp8(name):
    torch, wide = torch_inputs("float32")
    out, amax_o, amax_s = flashcore.attention(
        *(x.requires_grad_() for x in wide), out_dtype=getattr(torch, name), return_amax=True
    )
    assert not amax_o.requires_grad
    assert not amax_s.requires_grad
    with pytest.raises(flashcore.InvalidArgumentError, match=f"out: dtype is {name}, which has no"):
        out.float().sum().backward()


def test_torch_gradients_beside_the_largest_values():
    torch, _ = torch_inputs("float32")
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in inputs())
    flashcore.attention(q, k, v).sum().backward()
    wanted, q.grad = q.grad, None
    out, *_ = flashcore.attention(q, k, v, return_amax=True)
    out.sum().backward()
    assert torch.equal(q.grad, wanted)
    options = {"return_amax": True, "return_max_logit": True}
    each = torch.vmap(lambda q: flashcore.attention(q, q, q, **options))(q.detach()[None])
    assert [tuple(x.shape) for x in each] == [(1, 2, 4, 9, 16), *3 * [(1, 2, 4)]]
    out, score = flashcore.attention(q, k, v, return_max_logit=True)
    assert not score.requires_grad


def test_jax_has_no_gradients_of_the_largest_values():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(inputs()[0])

    def loss(which):
        options = {"return_amax": True, "return_max_logit": True}
        return jax.grad(lambda q: flashcore.attention(q, q, q, **options)[which].sum())(x)

    for which in (1, 2, 3):
        with pytest.raises(flashcore.UnsupportedError, match=r"max_\w+: has no gradient, wanted"):
            loss(which)
    alone = jax.grad(lambda q: flashcore.attention(q, q, q).sum())(x)
    assert np.array_equal(loss(0), alone)
