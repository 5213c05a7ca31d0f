"""Shared by the tests of PyTorch tensors: devices, inputs, and checks."""

import gates
import pytest

import flashcore

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402, F401

import flashcore.torch as ft  # noqa: E402

HAS_GPU = torch.cuda.is_available() and flashcore.build_info()["cuda"]


def places(on_cpu, on_gpu):
    """The parameters device and dtype: these dtypes on the CPU, others on a GPU if there is one."""
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
own_vmap = pytest.mark.skipif(
    not hasattr(torch.library, "register_vmap"), reason="PyTorch maps it in a loop"
)


def cuda(test):
    return pytest.mark.gpu(pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")(test))


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
    """Compares with PyTorch's own, in float64 from the same rounded inputs."""
    if options.get("attn_mask") is not None and options["attn_mask"].dtype is not torch.bool:
        options["attn_mask"] = options["attn_mask"].double()
    if options.pop("enable_gqa", False):  # PyTorch 2.4 does not know it
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **options)
    assert out.dtype is q.dtype
    assert out.device == q.device
    gates.check(out.double().cpu(), expected.cpu(), str(q.dtype).removeprefix("torch."))


# A GPU without a backward pass is left out.
GPU_GRADIENTS = HAS_GPU and ft._differentiates("cuda", 0, "float16", 64, 64)
place_gradients = places(
    [torch.float32, torch.bfloat16], [torch.float16, torch.bfloat16] if GPU_GRADIENTS else []
)
