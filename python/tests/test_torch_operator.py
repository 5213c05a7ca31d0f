"""Calls that PyTorch sees: torch.compile, autograd, torch.func, fake and meta tensors."""

import pytest
from torch_cases import (
    check,
    compiles,
    cuda,
    draw,
    ft,
    inputs,
    own_vmap,
    place,
    place_compiled,
    torch,
)

import flashcore
from flashcore._attention import DEFAULTS
from flashcore._torch_schema import scalars_of

pytestmark = pytest.mark.usefixtures("torch_seeded")


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
    scalars = scalars_of(DEFAULTS._replace(causal=True, alignment="top_left", return_lse=True))
    for x in (q, q.transpose(1, 2).contiguous().transpose(1, 2)):
        torch.library.opcheck(
            torch.ops.flashcore.attention.default, (x, k, v, *[None] * 14, *scalars)
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


@own_vmap
@place
def test_vmap_is_one_call(device, dtype, calls_of):
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
    seen = calls_of(flashcore._backend, "run_plan")
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
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            torch.func.jvp(call, (q,), (q,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, q)
            with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
                call(dual)
            assert torch.equal(call(q), flashcore.attention(q, q, q))
        with pytest.raises(flashcore.UnsupportedError, match="out, out_lse: are given under"):
            flashcore.attention(q.clone().requires_grad_(), q, q, out=torch.empty_like(q))
    assert torch.equal(torch.func.functionalize(call)(q), call(q))


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
