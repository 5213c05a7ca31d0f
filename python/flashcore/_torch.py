"""PyTorch tensors: the properties that a call reads, and new tensors. See _torch_operator.py."""

from collections.abc import Hashable
from typing import Any

import torch

from ._backend import Backend
from ._call import Fields
from ._errors import InvalidArgumentError, UnsupportedError
from ._layout import CODES, Layout, check_rank, dtype_code
from ._library import CPU, CUDA
from ._plan import Plan, aligned, cache

DTYPE_OF = {code: getattr(torch, name) for name, code in CODES.items() if hasattr(torch, name)}

KINDS = {"cpu": CPU, "cuda": CUDA}


def _current_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# Avoids creating an object per call; PyTorch's own generated code uses it.
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
_increment_version = getattr(torch.autograd.graph, "increment_version", lambda _: None)
_empty_strided = torch.empty_strided


def refuse_nested(argument: str, array: torch.Tensor) -> None:
    if array.is_nested:
        raise UnsupportedError(
            f"{argument}: is a nested tensor, wanted a dense one, or its values packed, with "
            "cu_seqlens_q and cu_seqlens_kv"
        )


def is_recorded(device: torch.device) -> bool:
    """Returns whether the call is compiled or captured: values are not available now."""
    return torch.compiler.is_compiling() or (
        device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    )


def draw_dropout(device: torch.device) -> dict[str, Any]:
    """Returns a seed or state for dropout on a device; torch.manual_seed makes it repeatable.

    The result is a dict of `attention`'s keywords. The seed is drawn from PyTorch's CPU generator.
    Under torch.compile, and while a CUDA graph is captured, it is a tensor from the device's
    generator instead: each run and each replay draws another one.
    """
    if is_recorded(device):
        return {"dropout_state": torch.randint(2**63 - 1, (2,), device=device)}
    return {"dropout_seed": int(torch.empty((), dtype=torch.int64).random_().item())}


def in_transform() -> bool:
    """Returns whether a torch.func transform (vmap, grad, functionalize) is active here."""
    return torch._C._are_functorch_transforms_active()


class TorchTensors(Backend):
    wanted = "a torch.Tensor"

    def owns(self, array: Any) -> bool:
        return isinstance(array, torch.Tensor)

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.stride(), array.device, array.is_neg()

    def layout(self, argument: str, array: Any) -> Layout:
        refuse_nested(argument, array)
        check_rank(argument, array.shape)
        if array.layout is not torch.strided:
            raise InvalidArgumentError(
                f"{argument}: layout is {array.layout}, wanted torch.strided"
            )
        if array.is_neg():
            raise InvalidArgumentError(
                f"{argument}: is a view with the negative bit, wanted it resolved (resolve_neg)"
            )
        kind = KINDS.get(array.device.type)
        if kind is None:
            raise UnsupportedError(f"{argument}: is on {array.device}, wanted cpu or cuda")
        return Layout(
            dtype_code(argument, str(array.dtype).removeprefix("torch.")),
            tuple(array.shape),
            array.stride(),
            (kind, array.device.index or 0),
        )

    pointer: Any = staticmethod(torch.Tensor.data_ptr)  # calling it makes no Python frame

    def dtype(self, argument: str, dtype: Any) -> int:
        if isinstance(dtype, torch.dtype):
            return dtype_code(argument, str(dtype).removeprefix("torch."))
        return super().dtype(argument, dtype)

    def empty(self, layout: Layout, like: Any) -> Any:
        return _empty_strided(
            layout.shape, layout.stride, dtype=DTYPE_OF[layout.dtype], device=like.device
        )

    empty_like: Any = staticmethod(torch.empty_like)

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        owner = torch.empty(nbytes + 256, dtype=torch.uint8, device=like.device)
        return owner, aligned(owner.data_ptr())

    def stream(self, like: Any) -> int:
        return _stream(like.device.index)

    def check_writable(self, argument: str, array: Any) -> None:
        if array.requires_grad and torch.is_grad_enabled():
            raise InvalidArgumentError(
                f"{argument}: requires a gradient, wanted a tensor that may be written into"
            )
        if not array.is_inference():
            _increment_version(array)  # so that autograd notices the write

    def plan(self, call: Fields) -> Plan:
        """A flat key for most calls costs less Python."""
        q, k, v, extras, options, _, outputs = call
        if extras is not None or outputs is not None:
            return super().plan(call)
        try:
            key = (
                q.dtype,
                k.dtype,
                v.dtype,
                q.shape,
                k.shape,
                v.shape,
                q.stride(),
                k.stride(),
                v.stride(),
                q.device,
                k.device,
                v.device,
                q.is_neg() or k.is_neg() or v.is_neg(),
                options,
            )
            plan = cache.get(key)
        except (TypeError, RuntimeError):  # raises with the reason
            return super().plan(call)
        if plan is None:
            plan = cache.put(key, Plan(self.request(call)))
        return plan
