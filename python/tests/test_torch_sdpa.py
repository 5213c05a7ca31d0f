"""The drop-in for PyTorch's scaled_dot_product_attention, and PyTorch's registry."""

import inspect
import re

import pytest
from process import python
from torch_cases import F, check, compiles, cuda, draw, ft, inputs, place, place_compiled, torch

import flashcore

pytestmark = pytest.mark.usefixtures("torch_seeded")


@pytest.mark.parametrize(
    "shape", [(37, 53), (2, 1, 37, 53), (1, 4, 1, 53), (2, 4, 37, 53), (1, 53)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
@place
def test_sdpa_masks(device, dtype, shape, kind):
    q, k, v = inputs(device, dtype)
    mask = torch.rand(*shape, device=device) < 0.7
    mask[..., 0] = True  # PyTorch versions differ for rows that see no key
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
    with pytest.raises(ValueError, match="dtype is float64"):
        ft.scaled_dot_product_attention(*[q.double()] * 3)


def test_sdpa_row_that_sees_nothing_is_zero():
    q = draw(1, 4, 8, 16)
    mask = torch.ones(8, 8, dtype=bool)
    mask[3] = False
    out = ft.scaled_dot_product_attention(q, q, q, mask)
    assert not out[:, :, 3].any()


CALLS = pytest.mark.parametrize("call", [ft.scaled_dot_product_attention, ft.attention])


@CALLS
@place
def test_dropout_follows_the_generator(call, device, dtype):
    q, k, v = inputs(device, dtype, heads=(4, 4))
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(call(q, k, v, dropout_p=0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    with pytest.raises(ValueError, match="dropout_offset: is 3, wanted 0 without dropout_seed"):
        ft.attention(q, k, v, dropout_p=0.5, dropout_offset=3)
    with pytest.raises(ValueError, match="dropout_seed: is None"):  # the forward pass has one
        flashcore.attention_backward(q, q, k, v, dropout_p=0.5)


@CALLS
def test_drawn_dropout_is_that_of_the_gradients(call):
    q, k, v = (x.requires_grad_() for x in inputs("cpu", torch.float32, heads=(4, 4)))
    with torch.enable_grad():
        torch.manual_seed(1)
        out = call(q, k, v, dropout_p=0.5)
        found = torch.autograd.grad(out.square().sum(), (q, k, v))
    torch.manual_seed(1)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    options = {"dropout_p": 0.5, "dropout_seed": seed}
    expected = flashcore.attention_backward(2 * out.detach(), q, k, v, **options)
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one, other)


@compiles
@place_compiled
def test_compiled_dropout_without_a_seed(device, dtype):
    q, k, v = inputs(device, dtype, heads=(4, 4))
    compiled = torch.compile(lambda q: ft.attention(q, k, v, dropout_p=0.5), fullgraph=True)
    results = []
    for seed in (1, 1, None):
        if seed is not None:
            torch.manual_seed(seed)
        results.append(compiled(q))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_where_dropout_is_drawn(monkeypatch):
    """A number, except for recorded calls: these draw on the device in each run."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from flashcore._torch import draw_dropout

    capturing = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    for device in ("cpu", "cuda"):
        assert set(draw_dropout(torch.device(device))) == {"dropout_seed"}
    capturing = True
    assert set(draw_dropout(torch.device("cpu"))) == {"dropout_seed"}
    with FakeTensorMode():  # provides a device for the state
        state = draw_dropout(torch.device("cuda"))["dropout_state"]
    assert state.device.type == "cuda"
    assert state.shape == (2,)
    assert state.dtype is torch.int64


@cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_each_replay_of_a_graph_draws_dropout(dtype):
    q, k, v = inputs("cuda", dtype, heads=(4, 4))
    ft.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ft.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    results = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.manual_seed(seed)
        graph.replay()
        results.append(out.clone())
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])


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
        with pytest.raises(ValueError, match="float64"):
            F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert F.scaled_dot_product_attention is before
    check(out, q, k, v)


@pytest.mark.parametrize("has_gradients", [False, True])
def test_fallback_keeps_gradients(has_gradients, monkeypatch):
    """PyTorch's function if the device has no backward pass, otherwise ours."""
    monkeypatch.setattr(ft, "_is_differentiated", lambda *_: has_gradients)
    q = draw(1, 4, 8, 16)
    with torch.enable_grad(), ft.replace_sdpa(fallback=True):
        mask = torch.zeros(8, 8, requires_grad=True)
        out = F.scaled_dot_product_attention(q, q, q, mask)
        out.sum().backward()
        assert mask.grad is not None
        assert ("flashcore" in out.grad_fn.name()) == has_gradients
        assert F.scaled_dot_product_attention(q, q, q, attn_mask=mask).requires_grad
        assert not F.scaled_dot_product_attention(q, q, q).requires_grad


@pytest.mark.parametrize("needs_grad", [False, True])
def test_fallback_for_a_distributed_tensor(needs_grad, monkeypatch):
    """A DTensor does not know our operator, and raises PyTorch's own error."""
    distributed = pytest.importorskip("torch.distributed")
    tensor = pytest.importorskip("torch.distributed.tensor")
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, k, v: "as before")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        q = tensor.distribute_tensor(draw(1, 4, 8, 16), mesh, [tensor.Shard(1)])
        q.requires_grad_(needs_grad)
        with torch.enable_grad(), ft.replace_sdpa(fallback=True):
            assert F.scaled_dot_product_attention(q, q, q) == "as before"
        with pytest.raises(NotImplementedError), ft.replace_sdpa():
            F.scaled_dot_product_attention(q, q, q)
    finally:
        distributed.destroy_process_group()


def test_which_devices_have_gradients():
    assert ft._differentiates("cpu", 0, "bfloat16", 64, 64)
    assert not ft._differentiates("cpu", 0, "float64", 64, 64)
    assert not ft._differentiates("meta", 0, "float32", 64, 64)
    assert not ft._differentiates("cuda", 99, "float16", 64, 64)


def test_replace_sdpa_reaches_modules():
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    layer.train()  # the fused inference path does not call it
    x = draw(2, 9, 32)
    expected = layer(x, x, x, need_weights=False)[0]
    with ft.replace_sdpa():
        out = layer(x, x, x, need_weights=False)[0]
    assert torch.allclose(out, expected, atol=1e-5)


def test_flash_registry_activates_silently():
    """Runs in a process of its own: PyTorch warns once, and warnings are errors here."""
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
    run = python("-c", program)
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
