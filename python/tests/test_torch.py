"""PyTorch tensors, on the CPU and on a GPU if there is one."""

import definition
import pytest
from torch_cases import F, check, cuda, draw, ft, inputs, place, torch

import flashcore

pytestmark = pytest.mark.usefixtures("torch_seeded")


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


def test_numbers_that_are_tensors():
    """Plans are cached by their options: a mutable one must not be in the key."""
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
    flashcore.attention(q, q, q)  # caches a plan for these shapes
    for arrays in ((torch._neg_view(q), q, q), (q, q, torch._neg_view(q))):
        with pytest.raises(ValueError, match="negative bit"):
            flashcore.attention(*arrays)


def test_hostile_tensors():
    q = draw(1, 4, 8, 16)
    with pytest.raises(ValueError, match="layout"):
        flashcore.attention(q.to_sparse(), q, q)
    with pytest.raises(ValueError, match="last dimension is 8, wanted 1"):
        flashcore.attention(q.mT.contiguous().mT[..., :4, :4], q[..., :4, :4], q[..., :4, :4])


@place
@pytest.mark.parametrize("call", [flashcore.attention, ft.scaled_dot_product_attention])
@pytest.mark.parametrize("kind", ["plain", "transposed", "expanded"])
@pytest.mark.parametrize("shapes", definition.EMPTY.values(), ids=definition.EMPTY)
def test_sizes_of_zero(call, kind, shapes, device, dtype):
    """In both passes, for any strides of a tensor without elements."""

    def made(shape):
        if kind == "transposed" and 0 in shape:
            return draw(*shape[::-1], device=device, dtype=dtype).permute(3, 2, 1, 0)
        if kind == "expanded" and 0 in shape:
            return draw(1, device=device, dtype=dtype).expand(shape)
        return draw(*shape, device=device, dtype=dtype)

    q, k = (made(shape).requires_grad_() for shape in shapes)
    options = {} if call is flashcore.attention else {"enable_gqa": True}
    with torch.enable_grad():
        out = call(q, k, k, **options)
        assert out.shape == q.shape
        assert not out.any()
        out.sum().backward()
    for x in (q, k):
        assert x.grad.shape == x.shape
        assert not x.grad.any()
    with torch.no_grad():
        for gradient in flashcore.attention_backward(out, q, k, k)[:3]:
            assert not gradient.any()


@cuda
def test_mixed_devices():
    q = draw(1, 4, 8, 64, device="cuda", dtype=torch.float16)
    with pytest.raises(ValueError, match="k: is on cpu, wanted cuda:0"):
        flashcore.attention(q, q.cpu(), q)
    with pytest.raises(ValueError, match="seqlens_kv: is on cpu, wanted cuda:0"):
        flashcore.attention(q, q, q, seqlens_kv=torch.tensor([3], dtype=torch.int32))


@cuda
def test_unsupported_on_the_gpu():
    q = draw(1, 4, 8, 584, device="cuda", dtype=torch.float16)
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
        torch.cuda._sleep(1_000_000_000)
        late = q * 1  # finished only after the sleep
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
def test_cuda_graph_of_calls_without_a_plan():
    """quantize, append and merge can be captured, so they run in the current stream."""
    q, k, v = inputs("cuda", torch.float16)
    lengths = torch.tensor([5, 0], dtype=torch.int32, device="cuda")
    caches = [torch.zeros(*x.shape[:2], 100, x.shape[3]).to(x) for x in (k, v)]

    def calls():
        small = flashcore.quantize(k, block=16, smooth=True)
        flashcore.append(k, v, *caches, seqlens_kv=lengths)
        parts = [flashcore.attention(q, k, v, return_lse=True, causal=x) for x in (False, True)]
        return [*small, *flashcore.merge(*parts[0], *parts[1]), *caches]

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = calls()
    for seed in range(2):
        torch.manual_seed(seed)
        k.copy_(torch.randn_like(k))
        for x in captured:
            x.zero_()
        graph.replay()
        found = [x.clone() for x in captured]
        for x, expected in zip(found, calls(), strict=True):
            assert torch.equal(x.view(torch.uint8), expected.view(torch.uint8))


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
    """Each call reads what the one before wrote: an early start must wait for it."""
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
