"""PyTorch's derivative of the operator: a second operator, torch.ops.flashcore.attention_backward.

It returns six gradients: of q, k, v, the bias, the sinks and the slopes. The last three are empty
if they are not requested.
"""

from typing import Any

import torch

from ._backward import OPTIONAL_OUTPUTS, OUTPUTS, BackwardCall, compute
from ._errors import UnsupportedError
from ._operands import NO_LARGEST
from ._torch import TorchTensors, in_transform
from ._torch_schema import (
    OPTIONS_COUNT,
    OPTIONS_SCHEMA,
    TAGS,
    TENSORS,
    TENSORS_SCHEMA,
    empty_like,
    library,
    options_of,
    state_of,
)
from ._torch_vmap import backward_batching_rule, batching_rule

_backend = TorchTensors()
_BELONGS_TO = tuple(
    TENSORS.index(name) for name in ("q", "k", "v", "bias", "sinks", "alibi_slopes")
)

library.define(
    f"attention_backward(Tensor d_out, Tensor? d_lse, Tensor out, Tensor lse, "
    f"{TENSORS_SCHEMA}, {OPTIONS_SCHEMA}, {', '.join(f'bool {n}' for n in OPTIONAL_OUTPUTS)}) -> "
    f"({', '.join(['Tensor'] * len(OUTPUTS))})",
    tags=TAGS,
)


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])  # the largest values
    ctx.save_for_backward(*output[:2], *inputs[: len(TENSORS)])
    ctx.scalars = inputs[len(TENSORS) :]


def differentiate(ctx: Any, d_out: Any, d_lse: Any, *_: Any) -> tuple[Any, ...]:
    found: list[Any] = [None] * (len(TENSORS) + OPTIONS_COUNT)
    if d_out is None and d_lse is None:
        return tuple(found)
    saved = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(saved[0])
    needed = [ctx.needs_input_grad[place] for place in _BELONGS_TO]
    # Derivatives inside of torch.func can be differentiated again.
    again = torch.is_grad_enabled() and in_transform()
    call = _DifferentiatedOnce.apply if again else torch.ops.flashcore.attention_backward
    gradients = call(d_out, d_lse, *saved, *ctx.scalars, *needed[3:])
    for place, gradient, is_needed in zip(_BELONGS_TO, gradients, needed, strict=True):
        if is_needed:
            found[place] = gradient
    return tuple(found)


class Differentiated(torch.autograd.Function):
    """The operator for the transforms of torch.func, which do not see its own derivative."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return torch.ops.flashcore.attention(*arguments)

    setup_context = staticmethod(save_for_backward)
    backward = staticmethod(differentiate)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return batching_rule(info, dims, *arguments)


class _DifferentiatedOnce(torch.autograd.Function):
    """The backward operator for these transforms; it has no derivative."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return torch.ops.flashcore.attention_backward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Saves nothing."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return _refuse(ctx)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> Any:
        return backward_batching_rule(info, dims, *arguments)


def _readable(x: torch.Tensor) -> torch.Tensor:
    """Makes a gradient from autograd readable: a sum's gradient, for instance, has stride 0."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _parts_of(rest: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, tuple[bool, ...]]:
    """Splits the operator's arguments from q on: tensors, options, requested gradients."""
    tensors, scalars = rest[: len(TENSORS)], rest[len(TENSORS) :]
    return tensors, options_of(scalars[:OPTIONS_COUNT]), scalars[OPTIONS_COUNT:]


def _backward(d_out: Any, d_lse: Any, out: Any, lse: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
    tensors, options, asked = _parts_of(rest)
    arrays = dict(zip(TENSORS, tensors, strict=True))
    arrays["dropout_state"], dropout = state_of(arrays["dropout_state"], options)
    arrays |= {"out": out, "lse": lse, "d_out": _readable(d_out), "d_lse": d_lse}
    call = BackwardCall(
        arrays={name: x for name, x in arrays.items() if x is not None},
        asked=tuple(n for n, wanted in zip(OPTIONAL_OUTPUTS, asked, strict=True) if wanted),
        grad_dtype=None,
        options=options._replace(out_dtype=None, return_lse=True, early_start=False, **NO_LARGEST),
        dropout=dropout,
    )
    nothing = tensors[0].new_empty
    return tuple(nothing(0) if x is None else x for x in compute(_backend, call))


def _backward_fake(
    d_out: Any, d_lse: Any, out: Any, lse: Any, *rest: Any
) -> tuple[torch.Tensor, ...]:
    tensors, _, asked = _parts_of(rest)
    wanted = (True, True, True, *asked)
    return tuple(
        empty_like(tensors[place], tensors[place].shape, tensors[place].dtype)
        if is_wanted
        else tensors[0].new_empty(0)
        for place, is_wanted in zip(_BELONGS_TO, wanted, strict=True)
    )


def _refuse(_ctx: Any, *_: Any) -> Any:
    raise UnsupportedError(
        "backward: the gradients of attention have no derivative, wanted one backward pass, "
        "without create_graph=True or a second derivative"
    )


for _key in ("CPU", "CUDA"):
    library.impl("attention_backward", _backward, _key)
torch.library.register_fake("flashcore::attention_backward", _backward_fake, lib=library)
torch.library.register_autograd("flashcore::attention_backward", _refuse, lib=library)
if hasattr(torch.library, "register_vmap"):  # before that, PyTorch maps it in a loop
    torch.library.register_vmap(
        "flashcore::attention_backward", backward_batching_rule, lib=library
    )
