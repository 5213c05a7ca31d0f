"""PyTorch tensors, on the CPU and where there is one on a GPU."""

import gates
import numpy as np
import pytest

import flashcore

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import flashcore.torch as ft  # noqa: E402

HAS_GPU = torch.cuda.is_available() and flashcore.build_info()["cuda"]


def places(on_cpu, on_gpu):
    """The parameters device and dtype: these dtypes on the CPU, those on a GPU if there is one."""
    found = [("cpu", dtype) for dtype in on_cpu]
    found += [("cuda", dtype) for dtype in on_gpu if HAS_GPU]
    return pytest.mark.parametrize(
        ("device", "dtype"),
        [
            pytest.param(
                device,
                dtype,
                id=f"{device}-{str(dtype).removeprefix('torch.')}",
                marks=pytest.mark.gpu if device == "cuda" else (),
            )
            for device, dtype in found
        ],
    )


place = places([torch.float32, torch.bfloat16], [torch.float16, torch.bfloat16, torch.float32])
place_compiled = places([torch.float32], [torch.float16])  # compiling takes seconds


compiles = pytest.mark.compiles


def cuda(test):
    return pytest.mark.gpu(pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")(test))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def draw(*shape, device="cpu", dtype=torch.float32):
    return torch.randn(*shape, device=device, dtype=dtype)


def inputs(device, dtype, heads=(4, 2), lengths=(37, 53), dims=(64, 64)):
    options = {"device": device, "dtype": dtype}
    return (
        draw(2, heads[0], lengths[0], dims[0], **options),
        draw(2, heads[1], lengths[1], dims[0], **options),
        draw(2, heads[1], lengths[1], dims[1], **options),
    )


def check(out, q, k, v, **options):
    """Against PyTorch's own, in float64 from the same rounded inputs."""
    if options.get("attn_mask") is not None and options["attn_mask"].dtype is not torch.bool:
        options["attn_mask"] = options["attn_mask"].double()
    if options.pop("enable_gqa", False):  # which PyTorch 2.4 does not know
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **options)
    assert out.dtype is q.dtype
    assert out.device == q.device
    gates.check(out.double().cpu(), expected.cpu(), str(q.dtype).removeprefix("torch."))


@place
@pytest.mark.parametrize("causal", [False, True])
def test_attention(device, dtype, causal):
    q, k, v = inputs(device, dtype)
    out, lse = flashcore.attention(q, k, v, causal=causal, alignment="top_left", return_lse=True)
    check(out, q, k, v, is_causal=causal, enable_gqa=True)
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 8
    if causal:
        scores.masked_fill_(~torch.ones(37, 53, dtype=bool, device=device).tril(), -torch.inf)
    gates.check_lse(lse.cpu(), scores.logsumexp(-1).cpu(), str(dtype).removeprefix("torch."))


@place
def test_every_option_is_the_same_as_with_numpy(device, dtype):
    q, k, v = inputs(device, dtype)
    options = {
        "bias": draw(1, 4, 37, 53, device=device),
        "mask": torch.rand(2, 1, 37, 53, device=device) < 0.7,
        "alibi_slopes": torch.rand(4, device=device),
        "sinks": draw(4, device=device),
        "seqlens_kv": torch.tensor([50, 20], dtype=torch.int32, device=device),
    }
    plain = {"softcap": 4.0, "window": (20, 4), "causal": True, "softmax_scale": 0.2}
    out, lse = flashcore.attention(q, k, v, return_lse=True, **options, **plain)
    host = [x.float().cpu().numpy() for x in (q, k, v)]
    expected, expected_lse = flashcore.attention(
        *host, return_lse=True, **{n: x.cpu().numpy() for n, x in options.items()}, **plain
    )
    name = str(dtype).removeprefix("torch.")
    gates.check(out.float().cpu(), expected, name)
    gates.check_lse(lse.cpu(), expected_lse, name)


@place
def test_packed(device, dtype):
    starts = torch.tensor([0, 5, 5, 22], dtype=torch.int32, device=device)
    q = draw(22, 4, 64, device=device, dtype=dtype)
    out = flashcore.attention(q, q, q, cu_seqlens_q=starts, cu_seqlens_kv=starts, causal=True)
    for first, last in ((0, 5), (5, 22)):
        part = q[first:last].transpose(0, 1)[None]
        check(out[first:last].transpose(0, 1)[None], part, part, part, is_causal=True)


@place
def test_dropout_is_the_same_everywhere(device, dtype):
    q, k, v = inputs(device, dtype)
    out = flashcore.attention(q, k, v, dropout_p=0.3, dropout_seed=5, dropout_offset=2**63)
    host = [x.float().cpu().numpy() for x in (q, k, v)]
    expected = flashcore.attention(*host, dropout_p=0.3, dropout_seed=5, dropout_offset=2**63)
    gates.check(out.float().cpu(), expected, str(dtype).removeprefix("torch."))


@place
def test_layout_of_the_output_is_that_of_q(device, dtype):
    buffer = draw(2, 37, 3 * 4 * 64, device=device, dtype=dtype)
    q, k, v = (x.unflatten(-1, (4, 64)).transpose(1, 2) for x in buffer.chunk(3, -1))
    out = flashcore.attention(q, k, v)
    check(out, q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    given = torch.full_like(out, torch.nan)
    assert flashcore.attention(q, k, v, out=given) is given
    assert torch.equal(given, out)


@pytest.mark.parametrize(
    "shape", [(37, 53), (2, 1, 37, 53), (1, 4, 1, 53), (2, 4, 37, 53), (1, 53)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
@place
def test_sdpa_masks(device, dtype, shape, kind):
    q, k, v = inputs(device, dtype)
    mask = torch.rand(*shape, device=device) < 0.7
    mask[..., 0] = True  # PyTorch versions differ in rows that see nothing
    if kind == "float":
        mask = draw(*shape, device=device, dtype=dtype)
    out = ft.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    check(out, q, k, v, attn_mask=mask, enable_gqa=True)


@place
@pytest.mark.parametrize(
    "shapes",
    [
        ((37, 64), (53, 64)),
        ((3, 37, 64), (3, 53, 64)),
        ((2, 3, 4, 37, 64), (2, 3, 4, 53, 64)),
        ((2, 4, 37, 64), (1, 4, 53, 64)),
        ((1, 4, 37, 64), (2, 1, 53, 64)),
        ((0, 4, 37, 64), (1, 4, 53, 64)),
    ],
)
def test_sdpa_ranks_and_broadcasts(device, dtype, shapes):
    q, k, v = (draw(*shapes[i], device=device, dtype=dtype) for i in (0, 1, 1))
    for causal in (False, True):
        out = ft.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3)
        check(out, q, k, v, is_causal=causal, scale=0.3)


@place
def test_sdpa_takes_any_strides(device, dtype):
    q, k, v = (x.mT.contiguous().mT for x in inputs(device, dtype, heads=(4, 4)))
    assert q.stride(-1) != 1
    check(ft.scaled_dot_product_attention(q, k, v), q, k, v)


def check_autocast(call, device, dtype):
    q, k, v = (x.float() for x in inputs(device, dtype, heads=(4, 4)))
    mask = draw(37, 53, device=device)
    with torch.autocast(device, torch.bfloat16):
        out = call(q, k.bfloat16(), v, mask)
        assert out.dtype is F.scaled_dot_product_attention(q, k, v, mask).dtype
    check(out, q.bfloat16(), k.bfloat16(), v.bfloat16(), attn_mask=mask.bfloat16())


@place
def test_sdpa_under_autocast(device, dtype):
    check_autocast(ft.scaled_dot_product_attention, device, dtype)


@compiles
@place_compiled
def test_compiled_sdpa_under_autocast(device, dtype):
    check_autocast(torch.compile(ft.scaled_dot_product_attention, fullgraph=True), device, dtype)


def test_sdpa_signature_is_pytorchs():
    import inspect
    import re

    text = F.scaled_dot_product_attention.__doc__
    theirs = re.search(r"scaled_dot_product_attention\(([^)]*)\)", text).group(1)
    names = [part.partition("=")[0].strip() for part in theirs.split(",")]
    ours = list(inspect.signature(ft.scaled_dot_product_attention).parameters)
    if "enable_gqa" not in names:  # PyTorch 2.4
        ours.remove("enable_gqa")
    assert ours == names


def test_sdpa_refusals():
    q = draw(1, 4, 8, 16)
    with pytest.raises(ValueError, match="attn_mask"):
        ft.scaled_dot_product_attention(q, q, q, torch.ones(8, 8, dtype=bool), is_causal=True)
    with pytest.raises(ValueError, match="enable_gqa"):
        ft.scaled_dot_product_attention(q, q[:, :2], q[:, :2])
    with pytest.raises(ValueError, match="dtype is f64"):
        ft.scaled_dot_product_attention(*[q.double()] * 3)


@place
def test_sdpa_of_jagged_tensors(device, dtype):
    options = {"device": device, "dtype": dtype}

    def jagged(heads, lengths):
        parts = [draw(length, heads, 32, **options) for length in lengths]
        return torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)

    q, k, v = jagged(4, (5, 17, 1)), jagged(2, (9, 17, 30)), jagged(2, (9, 17, 30))
    for causal in (False, True):
        out = ft.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True, scale=0.3)
        assert out.is_nested
        assert out.shape[:2] == (3, 4)
        for part, *inputs_of in zip(*(x.unbind() for x in (out, q, k, v)), strict=True):
            part, *inputs_of = (x[None] for x in (part, *inputs_of))
            check(part, *inputs_of, is_causal=causal, enable_gqa=True, scale=0.3)
    (q + out).unbind()  # is jagged in the same way
    with pytest.raises(NotImplementedError, match="attn_mask: is given with nested"):
        ft.scaled_dot_product_attention(q, k, v, torch.ones(1, dtype=bool, device=device))
    with pytest.raises(NotImplementedError, match="key: wanted all three tensors nested"):
        ft.scaled_dot_product_attention(q, draw(3, 4, 9, 32, **options), v)


def test_sdpa_refuses_what_is_no_dense_tensor():
    q = draw(1, 4, 8, 16)
    nested = torch.nested.nested_tensor([draw(4, 5, 16), draw(4, 7, 16)])
    jagged = torch.nested.nested_tensor([draw(5, 4, 16), draw(7, 4, 16)], layout=torch.jagged)
    for bad in (nested, jagged):
        with pytest.raises(NotImplementedError, match="query: wanted all three tensors nested"):
            ft.scaled_dot_product_attention(bad, bad, bad)
        with pytest.raises(NotImplementedError, match="q: is a nested tensor"):
            flashcore.attention(bad, bad, bad)
    with pytest.raises(NotImplementedError, match="key: is a nested tensor"):
        ft.scaled_dot_product_attention(q, nested, q)
    with pytest.raises(TypeError, match="key: is a list, wanted a torch.Tensor"):
        ft.scaled_dot_product_attention(q, [1.0], q)
    with pytest.raises(TypeError, match="query: is a numpy.ndarray"):
        ft.scaled_dot_product_attention(*[q.numpy()] * 3)
    with pytest.raises(ValueError, match="complex64"):
        ft.scaled_dot_product_attention(*[q.to(torch.complex64)] * 3)


def test_numbers_that_are_tensors():
    """A plan is kept by its options: one that can change in place must not be in its key."""
    q = draw(1, 4, 8, 16)
    for option in ("softmax_scale", "softcap", "causal", "causal_offset", "threads"):
        with pytest.raises(TypeError, match=f"{option}: is a torch.Tensor"):
            flashcore.attention(q, q, q, **{option: torch.tensor(1)})
    scale = torch.tensor(0.5)
    for _ in range(2):
        check(ft.scaled_dot_product_attention(q, q, q, scale=scale), q, q, q, scale=scale.item())
        scale += 0.5
    with pytest.raises(TypeError, match="no gradient"):
        ft.scaled_dot_product_attention(q, q, q, scale=torch.nn.Parameter(scale))


def test_sdpa_row_that_sees_nothing_is_zero():
    q = draw(1, 4, 8, 16)
    mask = torch.ones(8, 8, dtype=bool)
    mask[3] = False
    out = ft.scaled_dot_product_attention(q, q, q, mask)
    assert not out[:, :, 3].any()


@place
def test_sdpa_dropout_follows_the_generator(device, dtype):
    q, k, v = inputs(device, dtype, heads=(4, 4))
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(ft.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@place
def test_replace_sdpa(device, dtype):
    q, k, v = inputs(device, dtype, heads=(4, 4))
    before = F.scaled_dot_product_attention
    with ft.replace_sdpa():
        assert F.scaled_dot_product_attention is ft.scaled_dot_product_attention
        out = F.scaled_dot_product_attention(q, k, v)
        with ft.replace_sdpa(fallback=True):
            assert torch.equal(F.scaled_dot_product_attention(q, k, v), out)
            assert (
                F.scaled_dot_product_attention(q.double(), k.double(), v.double()).isfinite().all()
            )
        with pytest.raises(ValueError, match="f64"):
            F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert F.scaled_dot_product_attention is before
    check(out, q, k, v)


def test_fallback_keeps_gradients():
    q = draw(1, 4, 8, 16)
    with torch.enable_grad(), ft.replace_sdpa(fallback=True):
        mask = torch.zeros(8, 8, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, mask).sum().backward()
        assert mask.grad is not None
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()


def test_replace_sdpa_reaches_modules():
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    layer.train()  # the fused inference path does not call it
    x = draw(2, 9, 32)
    expected = layer(x, x, x, need_weights=False)[0]
    with ft.replace_sdpa():
        out = layer(x, x, x, need_weights=False)[0]
    assert torch.allclose(out, expected, atol=1e-5)


@compiles
@place_compiled
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_in_one_graph(device, dtype, dynamic):
    q, k, v = inputs(device, dtype)
    starts = draw(1, device=device)

    def model(q, k, v, mask):
        a = flashcore.attention(q * 2, k, v, causal=True, window=(30, 0))
        b, lse = flashcore.attention(q, k, v, mask=mask, return_lse=True)
        c = ft.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return a + 1, b * starts.to(dtype), lse, c

    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for length in (53, 41) if dynamic else (53,):
        mask = torch.rand(37, length, device=device)[None, None] < 0.7
        arguments = (q, k[:, :, :length], v[:, :, :length], mask)
        for actual, expected in zip(compiled(*arguments), model(*arguments), strict=True):
            assert actual.stride() == expected.stride()
            torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2)


@place
def test_operator_is_well_behaved(device, dtype):
    q, k, v = inputs(device, dtype)
    scalars = [
        True,
        None,
        0.0,
        "top_left",
        0,
        -1,
        -1,
        0.0,
        None,
        True,
        0,
        0,
        0,
        None,
        0,
        False,
        False,
    ]
    for x in (q, q.transpose(1, 2).contiguous().transpose(1, 2)):
        torch.library.opcheck(
            torch.ops.flashcore.attention.default,
            (x, k, v, *[None] * 12, *scalars, None, 0),
        )


@place
def test_meta_and_fake_tensors(device, dtype):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = inputs(device, dtype)
    expected = flashcore.attention(q, k, v)
    out = flashcore.attention(q.to("meta"), k.to("meta"), v.to("meta"))
    assert out.is_meta
    assert out.shape == expected.shape
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (q, k, v)]
        out = flashcore.attention(*fakes)
    assert out.device == expected.device
    assert out.stride() == expected.stride()


own_vmap = pytest.mark.skipif(
    not hasattr(torch.library, "register_vmap"), reason="PyTorch maps it in a loop"
)


@own_vmap
@place
def test_vmap_is_one_call(device, dtype, monkeypatch):
    options = {"device": device, "dtype": dtype}
    q, k, v = draw(3, 2, 4, 9, 16, **options), draw(2, 11, 2, 16, **options), draw(3, 2, 2, 11, 16)
    k, v = k.transpose(1, 2), v.to(**options)
    mask = torch.rand(2, 1, 9, 11, device=device) < 0.7
    slopes = torch.rand(4, 3, device=device)
    bias = draw(3, 1, 4, 1, 11, device=device)
    lengths = torch.tensor([11, 5], dtype=torch.int32, device=device)

    def call(q, k, v, mask, slopes, bias, lengths):
        return flashcore.attention(
            q,
            k,
            v,
            mask=mask,
            alibi_slopes=slopes,
            bias=bias,
            seqlens_kv=lengths,
            causal=True,
            return_lse=True,
        )

    expected = [call(q[i], k, v[i], mask, slopes[:, i], bias[i], lengths) for i in range(3)]
    seen = []
    run = flashcore._backend.run_plan
    monkeypatch.setattr(flashcore._backend, "run_plan", lambda *a: (seen.append(1), run(*a))[1])
    out, lse = torch.vmap(call, in_dims=(0, None, 0, None, 1, 0, None))(
        q, k, v, mask, slopes, bias, lengths
    )
    assert len(seen) == 1
    for actual, wanted in ((out, 0), (lse, 1)):
        for i in range(3):
            assert torch.equal(actual[i], expected[i][wanted])
    plain = torch.vmap(torch.vmap(lambda q: flashcore.attention(q, q, q)))(q[None])[0]
    check(plain, q, q, q)


@own_vmap
def test_vmap_refusals():
    q = draw(3, 2, 4, 8, 16)
    starts = torch.tensor([0, 8], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="q is packed"):
        torch.vmap(
            lambda x: flashcore.attention(x, x, x, cu_seqlens_q=starts, cu_seqlens_kv=starts)
        )(q[0])
    with pytest.raises(NotImplementedError, match="sinks: is mapped"):
        torch.vmap(lambda x, s: flashcore.attention(x, x, x, sinks=s))(q, draw(3, 4))
    with pytest.raises(NotImplementedError, match="wanted 0 under vmap"):
        torch.vmap(lambda x: flashcore.attention(x, x, x, dropout_p=0.5, dropout_seed=1))(q)


def test_derivatives_are_never_left_out():
    q = draw(2, 4, 8, 16)

    def call(x):
        return flashcore.attention(x, q, q)

    with torch.enable_grad():
        with pytest.raises(NotImplementedError, match="no derivative under torch.func"):
            torch.func.grad(lambda x: call(x).sum())(q)
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            torch.func.jvp(call, (q,), (q,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, q)
            with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
                call(dual)
            assert torch.equal(call(q), flashcore.attention(q, q, q))
        mapped = draw(3, 2, 4, 8, 16).requires_grad_()
        with pytest.raises(flashcore.UnsupportedError, match="no backward pass"):
            torch.vmap(call)(mapped).sum().backward()
    assert torch.equal(torch.func.functionalize(call)(q), call(q))


@place
def test_backward_says_that_it_is_missing(device, dtype):
    q, k, v = inputs(device, dtype)
    expected, expected_lse = flashcore.attention(q, k, v, return_lse=True)
    with torch.enable_grad():
        q.requires_grad_()
        out, lse = flashcore.attention(q, k, v, return_lse=True)
        assert torch.equal(out, expected)
        assert torch.equal(lse, expected_lse)
        assert out.requires_grad
        with pytest.raises(flashcore.UnsupportedError, match="no backward pass"):
            out.sum().backward()
        with pytest.raises(flashcore.UnsupportedError, match="out"):
            flashcore.attention(q, k, v, out=torch.empty_like(expected))


@compiles
@place_compiled
def test_compiled_backward_says_that_it_is_missing(device, dtype):
    q, k, v = inputs(device, dtype)
    with torch.enable_grad():
        q.requires_grad_()
        compiled = torch.compile(lambda q: flashcore.attention(q, k, v) * 2, fullgraph=True)
        with pytest.raises(flashcore.UnsupportedError, match="no backward pass"):
            compiled(q).sum().backward()


def test_subclasses_and_parameters():
    class Wrapped(torch.Tensor):
        pass

    q = draw(1, 4, 8, 16)
    expected = flashcore.attention(q, q, q)
    parameter = torch.nn.Parameter(q)
    assert torch.equal(flashcore.attention(parameter, q, q), expected)
    assert torch.equal(flashcore.attention(q.as_subclass(Wrapped), q, q), expected)


def test_inference_mode():
    with torch.inference_mode():
        q = draw(1, 4, 8, 16)
        assert flashcore.attention(q, q, q).is_inference()


def test_written_outputs_are_seen_by_autograd():
    q = draw(1, 4, 8, 16)
    with torch.enable_grad():
        leaf = torch.ones_like(q, requires_grad=True)
        total = (leaf * q).sum()  # the product keeps q for its backward pass
    other = draw(1, 4, 8, 16)
    flashcore.attention(other, other, other, out=q)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_negated_views_are_not_taken_for_their_memory():
    q = draw(1, 4, 8, 16)
    flashcore.attention(q, q, q)  # a plan for these shapes is there
    for arrays in ((torch._neg_view(q), q, q), (q, q, torch._neg_view(q))):
        with pytest.raises(ValueError, match="negative bit"):
            flashcore.attention(*arrays)


def test_hostile_tensors():
    q = draw(1, 4, 8, 16)
    with pytest.raises(TypeError, match="k: is a numpy.ndarray, wanted a torch.Tensor"):
        flashcore.attention(q, q.numpy(), q)
    with pytest.raises(TypeError, match="q: is a numpy.ndarray|k: is a torch.Tensor"):
        flashcore.attention(q.numpy(), q, q)
    with pytest.raises(ValueError, match="layout"):
        flashcore.attention(q.to_sparse(), q, q)
    with pytest.raises(ValueError, match="last dimension is 8, wanted 1"):
        flashcore.attention(q.mT.contiguous().mT[..., :4, :4], q[..., :4, :4], q[..., :4, :4])
    with pytest.raises(ValueError, match="dtype is int64"):
        flashcore.attention(q.long(), q.long(), q.long())
    with pytest.raises(ValueError, match="seqlens_kv: dtype is int64, wanted"):
        flashcore.attention(q, q, q, seqlens_kv=torch.tensor([3]))
    for shape in [(0, 4, 8, 16), (1, 0, 8, 16), (1, 4, 0, 16)]:
        empty = torch.empty(shape)
        assert flashcore.attention(empty, empty, empty).shape == shape


@cuda
def test_mixed_devices():
    q = draw(1, 4, 8, 64, device="cuda", dtype=torch.float16)
    with pytest.raises(ValueError, match="k: is on cpu, wanted cuda:0"):
        flashcore.attention(q, q.cpu(), q)
    with pytest.raises(ValueError, match="seqlens_kv: is on cpu, wanted cuda:0"):
        flashcore.attention(q, q, q, seqlens_kv=torch.tensor([3], dtype=torch.int32))


@cuda
def test_unsupported_on_the_gpu():
    q = draw(1, 4, 8, 320, device="cuda", dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="no kernel of this device computes it"):
        flashcore.attention(q, q, q)
    with ft.replace_sdpa(fallback=True):
        assert F.scaled_dot_product_attention(q, q, q).isfinite().all()


@cuda
def test_the_current_stream_is_used():
    q, k, v = inputs("cuda", torch.float16, lengths=(2048, 2048))
    expected = flashcore.attention(q, k, v)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late = q * 1  # done only when the sleep is
        out = flashcore.attention(late, k, v)
        done = torch.cuda.Event()
        done.record()
        assert not done.query()  # the call did not wait
    stream.synchronize()
    assert torch.equal(out, expected)


@cuda
def test_cuda_graph():
    q, k, v = inputs("cuda", torch.float16)
    flashcore.attention(q, k, v, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flashcore.attention(q, k, v, causal=True)
    for seed in range(3):
        torch.manual_seed(seed)
        q.copy_(torch.randn_like(q))
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, flashcore.attention(q, k, v, causal=True))


@cuda
def test_cuda_graph_of_a_problem_never_seen():
    q, k, v = inputs("cuda", torch.float16, lengths=(39, 59))
    flashcore.clear_plans()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flashcore.attention(q, k, v, causal=True)
    graph.replay()
    assert torch.equal(out, flashcore.attention(q, k, v, causal=True))


@cuda
def test_early_start_is_the_same_result():
    """Calls that each read what the one before wrote: an early start must wait for it."""
    q, k, v = inputs("cuda", torch.float16, heads=(8, 8), lengths=(512, 512))
    expected, out = q, q
    for _ in range(20):
        expected = flashcore.attention(expected, k, v)
    for _ in range(20):
        out = flashcore.attention(out, k, v, early_start=True)
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = q
        for _ in range(20):
            captured = flashcore.attention(captured, k, v, early_start=True)
    graph.replay()
    assert torch.equal(captured, expected)


@compiles
@cuda
def test_compile_with_cuda_graphs():
    q, k, v = inputs("cuda", torch.float16)
    compiled = torch.compile(
        lambda q: flashcore.attention(q * 2, k, v), fullgraph=True, mode="reduce-overhead"
    )
    for _ in range(4):
        q = torch.randn_like(q)
        out = compiled(q).clone()
        torch.testing.assert_close(out, flashcore.attention(q * 2, k, v))


def test_flash_registry_activates_silently():
    """In a process of its own, for PyTorch warns once; a warning would be an error there."""
    import subprocess
    import sys

    if not ft.register_flash_impl():
        pytest.skip("this PyTorch has no registry of flash attention implementations")
    program = """
import warnings, torch, flashcore.torch
from torch.nn.attention import *
flashcore.torch.register_flash_impl()
warnings.simplefilter("error")
for _ in range(2):
    activate_flash_attention_impl("flashcore")
    assert current_flash_attention_impl() == "flashcore"
    restore_flash_attention_impl()
assert current_flash_attention_impl() is None
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Overriding" not in run.stderr


@cuda
def test_flash_registry():
    if not ft.register_flash_impl():
        pytest.skip("this PyTorch has no registry of flash attention implementations")
    from torch.nn.attention import (
        SDPBackend,
        activate_flash_attention_impl,
        restore_flash_attention_impl,
        sdpa_kernel,
    )

    q, k, v = inputs("cuda", torch.bfloat16, heads=(4, 4), lengths=(64, 64))
    activate_flash_attention_impl("flashcore")
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert torch.equal(out, ft.scaled_dot_product_attention(q, k, v, is_causal=True))
        with torch.enable_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            leaf = q.clone().requires_grad_()
            F.scaled_dot_product_attention(leaf, k, v, is_causal=True).sum().backward()
    finally:
        restore_flash_attention_impl()
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        exact = q.clone().requires_grad_()
        F.scaled_dot_product_attention(exact, k, v, is_causal=True).sum().backward()
    torch.testing.assert_close(leaf.grad, exact.grad, atol=3e-2, rtol=3e-2)


def test_numpy_and_torch_agree_bit_for_bit(rng):
    q, k, v = (rng.normal(size=(1, 4, 9, 16)).astype(np.float32) for _ in range(3))
    ours = flashcore.attention(*(torch.from_numpy(x) for x in (q, k, v)))
    assert np.array_equal(ours.numpy(), flashcore.attention(q, k, v))
