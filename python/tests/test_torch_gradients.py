"""PyTorch differentiates `attention`: eager, compiled, checkpointed, under torch.func."""

import contextlib
import functools
import itertools

import gates
import pytest
from torch_cases import F, checkpoint, compiles, draw, ft, inputs, own_vmap, place_gradients, torch

import flashcore
from flashcore._attention import DEFAULTS
from flashcore._torch_schema import scalars_of

pytestmark = pytest.mark.usefixtures("torch_gradients")


@pytest.fixture
def torch_gradients():
    torch.manual_seed(0)


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


def gradients_of(call, arrays, d_out):
    """Uses new leaves, so that no gradient is left from an earlier call."""
    arrays = leaves(*arrays)
    out = call(*arrays)
    return torch.autograd.grad(out, arrays, d_out.to(out.dtype))


def check(call, arrays, expected_call):
    """Compares with PyTorch's own gradients in float64, from the same rounded inputs."""
    name = str(arrays[0].dtype).removeprefix("torch.")
    d_out = torch.randn_like(call(*arrays))
    actual = gradients_of(call, arrays, d_out)
    exact = gradients_of(expected_call, [x.double() for x in arrays], d_out)
    for one, other, x in zip(actual, exact, arrays, strict=True):
        assert one.dtype is x.dtype
        assert one.shape == x.shape
        gates.check_gradient(one.double().cpu(), other.cpu(), name)


@place_gradients
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa(device, dtype, causal):
    options = {"is_causal": causal, "scale": 0.2}
    check(
        lambda q, k, v: ft.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options),
        inputs(device, dtype),
        lambda q, k, v: F.scaled_dot_product_attention(
            q, *(x.repeat_interleave(2, 1) for x in (k, v)), **options
        ),
    )


@place_gradients
@pytest.mark.parametrize("shape", [(37, 53), (2, 1, 37, 53), (1, 4, 1, 53), (1, 53)])
def test_sdpa_with_a_mask_that_learns(device, dtype, shape):
    arrays = [*inputs(device, dtype, heads=(4, 4)), draw(*shape, device=device, dtype=dtype)]
    check(ft.scaled_dot_product_attention, arrays, F.scaled_dot_product_attention)


@place_gradients
@pytest.mark.parametrize(
    "shapes", [((37, 64), (53, 64)), ((2, 3, 4, 9, 16), (2, 3, 4, 11, 16)), ((2, 4, 9, 16),) * 2]
)
def test_sdpa_of_any_rank_and_strides(device, dtype, shapes):
    arrays = [draw(*shapes[i], device=device, dtype=dtype).mT.contiguous().mT for i in (0, 1, 1)]
    check(ft.scaled_dot_product_attention, arrays, F.scaled_dot_product_attention)
    broadcast = [arrays[0], arrays[1][:1], arrays[2][:1]] if len(shapes[0]) == 4 else arrays
    check(ft.scaled_dot_product_attention, broadcast, F.scaled_dot_product_attention)


def test_only_what_is_needed_is_computed(calls_of):
    seen = calls_of(flashcore._torch_backward, "compute")
    q, k, v = inputs("cpu", torch.float32)
    sinks, bias = draw(4), draw(1, 4, 1, 53)
    (v,) = leaves(v)
    flashcore.attention(q, k, v, sinks=sinks, bias=bias).sum().backward()
    assert v.grad is not None
    (sinks,) = leaves(sinks)
    flashcore.attention(q, k, v.detach(), sinks=sinks, bias=bias).sum().backward()
    assert sinks.grad.shape == (4,)
    assert q.grad is k.grad is None
    assert [call.asked for (_, call), _ in seen] == [(), ("d_sinks",)]
    _, lse = flashcore.attention(q, k, v, return_lse=True)
    assert not torch.autograd.grad(lse.sum(), v)[0].any()
    # If no input requires a gradient, neither does the result.
    assert not flashcore.attention(q, k, v.detach()).requires_grad


@place_gradients
def test_gradients_that_autograd_makes(device, dtype):
    """The gradient of a sum has stride 0; a transposed loss gives other strides than O's."""
    q, k, v = leaves(*inputs(device, dtype))
    out = flashcore.attention(q, k, v)
    ones = torch.ones_like(out)
    expected = torch.autograd.grad(out, q, ones, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(out.sum(), q, retain_graph=True)[0], expected)
    odd = torch.autograd.grad(out, q, ones.mT.contiguous().mT, retain_graph=True)[0]
    assert torch.equal(odd, expected)
    negative = torch.autograd.grad(out, q, torch._neg_view(-ones), retain_graph=True)[0]
    assert torch.equal(negative, expected)


@pytest.mark.parametrize("option", ["none", "causal", "softcap", "bias", "sinks", "dropout"])
def test_gradcheck(option):
    """Checks the reference in float64. Inputs and steps are exact in float32."""
    options = {
        "causal": {"causal": True},
        "softcap": {"softcap": 1.0},
        "dropout": {"dropout_p": 0.3, "dropout_seed": 5},
    }.get(option, {})
    shapes = [(1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 3)]
    learnt = {"bias": (1, 2, 1, 5), "sinks": (2,)}.get(option)
    arrays = [
        torch.randint(-512, 512, shape).double().div(256).requires_grad_()
        for shape in (*shapes, *([learnt] if learnt else []))
    ]

    def call(q, k, v, *rest):
        extra = {option: rest[0].float()} if rest else {}
        return flashcore.attention(
            *(x.float() for x in (q, k, v)),
            kernel="reference",
            out_dtype=torch.float64,
            **options,
            **extra,
        )

    assert torch.autograd.gradcheck(call, arrays, eps=2**-10, atol=1e-5, rtol=1e-4)


def operator_arguments(device, dtype, **options):
    q, k, v = inputs(device, dtype, lengths=(9, 11), dims=(16, 16))
    bias, sinks = draw(1, 4, 1, 11, device=device), draw(4, device=device)
    state = torch.tensor([1, 2]) if "dropout_p" in options else None
    extras = [bias, None, None, sinks, *[None] * 9, state]
    scalars = scalars_of(DEFAULTS._replace(return_lse=True, causal=True, **options))
    return q, k, v, *extras, *scalars


@compiles
@place_gradients
@pytest.mark.parametrize("options", [{}, {"dropout_p": 0.2}], ids=["plain", "dropout"])
def test_operators_are_well_behaved(device, dtype, options):
    forward = operator_arguments(device, dtype, **options)
    out, lse, *_ = torch.ops.flashcore.attention(*forward)
    backward = torch.ops.flashcore.attention_backward.default
    for asked in ((True, True, False), (False, False, False)):
        torch.library.opcheck(
            backward, (torch.randn_like(out), torch.randn_like(lse), out, lse, *forward, *asked)
        )
    learning = [x.requires_grad_() if i in (0, 1, 2, 3, 6) else x for i, x in enumerate(forward)]
    torch.library.opcheck(torch.ops.flashcore.attention.default, learning)


@compiles
@place_gradients
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_in_one_graph(device, dtype, dynamic):
    def model(q, k, v, bias):
        a, lse = flashcore.attention(q * 2, k, v, causal=True, bias=bias, return_lse=True)
        b = ft.scaled_dot_product_attention(a, k, v, is_causal=True, enable_gqa=True)
        return (a + b).float().square().mean() + lse.mean()

    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for length in (53, 41) if dynamic else (53,):
        q, k, v = inputs(device, dtype, lengths=(37, length))
        bias = draw(1, 4, 1, length, device=device)
        found = []
        for call in (compiled, model):
            arrays = leaves(q, k, v, bias)
            call(*arrays).backward()
            found.append([x.grad for x in arrays])
        for actual, expected in zip(*found, strict=True):
            torch.testing.assert_close(actual, expected, atol=1e-3, rtol=2e-2)


@compiles
def test_compiled_self_attention():
    """One tensor as q, k and v: its gradient is the sum of three."""
    (x,) = leaves(draw(1, 2, 8, 16))

    def loss(x):
        return flashcore.attention(x, x, x, causal=True).square().sum()

    (expected,) = torch.autograd.grad(loss(x), x)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], expected)
    # No silently wrong result.
    for call in (loss, lambda x: loss(x * 1)):
        compiled = torch.compile(torch.func.grad(call), fullgraph=True, backend="aot_eager")
        with pytest.raises(Exception, match="torch.func.grad|functorch transforms"):
            compiled(x.detach())


def same_mask(run):
    """<dV, V> is <dO, O> if and only if the backward pass has the mask of the forward pass."""
    q, k, v = leaves(*inputs("cpu", torch.float32, heads=(4, 4)))
    out = run(q, k, v)
    d_out = torch.randn_like(out)
    out.backward(d_out)
    one, other = (v.grad.double() * v.double()).sum(), (d_out.double() * out.double()).sum()
    assert one.item() == pytest.approx(other.item(), rel=1e-5)
    return out


def dropped(q, k, v):
    return ft.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    def saved(q, k, v):
        return checkpoint(dropped, q, k, v, use_reentrant=reentrant)

    torch.manual_seed(1)
    expected = same_mask(dropped)
    torch.manual_seed(1)
    assert torch.equal(same_mask(saved), expected)


@compiles
def test_compiled_dropout():
    torch._dynamo.reset()
    compiled = torch.compile(dropped, fullgraph=True)
    first, second = (same_mask(compiled) for _ in range(2))
    assert not torch.equal(first, second)

    @torch.compile(fullgraph=True)
    def saved(q, k, v):
        return checkpoint(dropped, q, k, v, use_reentrant=False) * 1

    same_mask(saved)


def test_a_state_of_dropout_in_memory():
    q, k, v = inputs("cpu", torch.float32)
    state = torch.tensor([5, -(2**63)])
    numbers = {"dropout_p": 0.3, "dropout_seed": 5, "dropout_offset": 2**63}
    memory = {"dropout_p": 0.3, "dropout_state": state}

    def results(options):
        call = functools.partial(flashcore.attention, **options)
        return call(q, k, v), *gradients_of(call, (q, k, v), torch.ones(2, 4, 37, 64))

    assert all(itertools.starmap(torch.equal, zip(results(memory), results(numbers), strict=True)))
    with pytest.raises(ValueError, match="dropout_state: dtype is int32, wanted int64"):
        flashcore.attention(q, k, v, dropout_p=0.3, dropout_state=state.int())
    for x in (q, q.clone().requires_grad_()):
        with pytest.raises(ValueError, match=r"dropout_state: shape is \[1\], wanted \[2\]"):
            flashcore.attention(x, k, v, dropout_p=0.3, dropout_state=state[:1])


@place_gradients
def test_torch_func(device, dtype):
    q, k, v = inputs(device, dtype)

    def loss(q, k, v):
        return flashcore.attention(q, k, v, causal=True).float().square().sum()

    expected = gradients_of(loss, (q, k, v), torch.ones(()))
    for one, other in zip(torch.func.grad(loss, (0, 1, 2))(q, k, v), expected, strict=True):
        assert torch.equal(one, other)
    out, pullback = torch.func.vjp(lambda q: flashcore.attention(q, k, v, causal=True), q)
    assert torch.equal(pullback(2 * out)[0], expected[0])


@own_vmap
@place_gradients
def test_gradients_per_sample(device, dtype):
    q, k, v = inputs(device, dtype)
    sinks, bias = draw(4, device=device), draw(1, 4, 1, 53, device=device)

    def loss(q, k, v, sinks, bias):
        out = flashcore.attention(q[None], k[None], v[None], sinks=sinks, bias=bias)
        return out.float().square().sum()

    each = torch.vmap(torch.func.grad(loss, (0, 1, 2, 3, 4)), in_dims=(0, 0, 0, None, None))
    found = each(q, k, v, sinks, bias)
    for i in range(2):
        arrays = (q[i], k[i], v[i], sinks, bias)
        expected = gradients_of(loss, arrays, torch.ones(()))
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one[i], other)


@own_vmap
def test_backward_through_vmap():
    q, k, v = inputs("cpu", torch.float32)
    slopes = torch.rand(4)

    def mapped(q, k, v, slopes):
        one = lambda q, k, v: flashcore.attention(  # noqa: E731
            q[None], k[None], v[None], alibi_slopes=slopes
        )[0]
        return torch.vmap(one)(q, k, v)

    d_out = torch.randn_like(q)
    actual = gradients_of(mapped, (q, k, v, slopes), d_out)
    expected = gradients_of(
        lambda q, k, v, s: flashcore.attention(q, k, v, alibi_slopes=s), (q, k, v, slopes), d_out
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


@place_gradients
def test_nested_tensors(device, dtype):
    def jagged(heads, lengths):
        parts = [draw(length, heads, 32, device=device, dtype=dtype) for length in lengths]
        return torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)

    q, k, v = leaves(jagged(4, (5, 17, 1)), jagged(2, (9, 17, 30)), jagged(2, (9, 17, 30)))
    out = ft.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    gradients = torch.autograd.grad(out, (q, k, v), out.detach())
    for i, (part, d_out) in enumerate(zip(out.unbind(), out.detach().unbind(), strict=True)):
        arrays = [x.detach().unbind()[i][None] for x in (q, k, v)]
        expected = gradients_of(
            lambda *x: ft.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True),
            arrays,
            d_out[None],
        )
        assert part.shape == d_out.shape
        for one, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(one.unbind()[i], other[0], atol=2e-2, rtol=2e-2)


def test_second_derivatives_are_refused():
    q, k, v = leaves(*inputs("cpu", torch.float32))
    (dq,) = torch.autograd.grad(flashcore.attention(q, k, v).sum(), q, create_graph=True)
    assert torch.isfinite(dq).all()
    with pytest.raises(NotImplementedError, match="gradients of attention have no derivative"):
        dq.sum().backward()

    def loss(q):
        return flashcore.attention(q, k.detach(), v.detach()).sum()

    with pytest.raises(NotImplementedError, match="gradients of attention have no derivative"):
        torch.func.grad(lambda q: torch.func.grad(loss)(q).sum())(q.detach())


def test_attention_backward_itself():
    q, k, v = inputs("cpu", torch.float32)
    d_out = torch.ones(2, 4, 37, 64)
    with pytest.raises(NotImplementedError, match="attention_backward: has no derivative"):
        flashcore.attention_backward(d_out, *leaves(q, k, v))
    with pytest.raises(NotImplementedError, match="tensors that have no memory"):
        flashcore.attention_backward(*(x.to("meta") for x in (d_out, q, k, v)))
    with pytest.raises(NotImplementedError, match="tensors that have no memory"):
        torch.vmap(lambda x: flashcore.attention_backward(x, x, x, x)[0])(q[None])
    with pytest.raises(TypeError, match="d_out: is a list"):
        flashcore.attention_backward([1], q, k, v)


def test_modules_learn():
    """nn.MultiheadAttention in replace_sdpa, with and without autocast."""
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = draw(2, 9, 32)
    for dtype in (torch.float32, torch.bfloat16):
        found = []
        for replaced in (False, True):
            layer.zero_grad()
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16),
                ft.replace_sdpa() if replaced else contextlib.nullcontext(),
            ):
                out = layer(x, x, x, need_weights=False)[0]
            out.float().square().sum().backward()
            found.append([p.grad.clone() for p in layer.parameters()])
        for expected, actual in zip(*found, strict=True):
            limit = 1e-5 if dtype is torch.float32 else 3e-2
            assert (actual - expected).norm() <= limit * expected.norm() + 1e-4


def test_pytorchs_flash_backward():
    """The functions that register_flash_impl registers for GPUs, called directly."""
    q, k, v = inputs("cpu", torch.float32, heads=(4, 4), lengths=(37, 37))
    out, lse, *rest = ft._flash_forward(q, k, v, is_causal=True, scale=0.3)
    d_out = torch.randn_like(out)
    *lengths, seed, offset, _ = rest
    assert lengths[0] is lengths[1] is None
    gradients = ft._flash_backward(
        d_out, q, k, v, out, lse, *lengths, 0.0, True, seed, offset, scale=0.3
    )
    expected = gradients_of(
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True, scale=0.3), (q, k, v), d_out
    )
    for one, other in zip(gradients, expected, strict=True):
        gates.check_gradient(one, other, "float32")


def test_not_deterministic_is_taken():
    q, k, v = leaves(*inputs("cpu", torch.float32))
    for deterministic in (True, False):
        out = flashcore.attention(q, k, v, deterministic=deterministic)
        (dq,) = torch.autograd.grad(out.sum(), q)
        assert dq.isfinite().all()
    with pytest.raises(TypeError, match="deterministic: is a str, wanted True or False"):
        flashcore.attention(q.detach(), k.detach(), v.detach(), deterministic="no")
