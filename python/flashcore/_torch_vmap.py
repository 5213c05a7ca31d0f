"""torch.vmap of the operator: the mapped dimension joins the batch, so one call does it all."""

from typing import Any

import torch

from ._errors import UnsupportedError
from ._operands import OPERANDS, OPTIONAL_TENSORS

_DROPOUT_P = len(OPTIONAL_TENSORS) + 7  # its index after q, k and v


def batching_rule(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
    """Implements torch.library.register_vmap: returns the outputs, and their mapped dimension.

    Nothing is computed twice, but an unmapped tensor is repeated unless its batch is 1.
    """
    size = info.batch_size
    tensors = [
        x if dim is None else x.movedim(dim, 0) for x, dim in zip(arguments, dims, strict=True)
    ]
    is_mapped = [dim is not None for dim in dims]
    if tensors[0].dim() != 4 + is_mapped[0]:
        raise UnsupportedError("vmap: q is packed, wanted [B, H, S, D]")
    if tensors[3 + _DROPOUT_P] != 0:
        raise UnsupportedError(f"dropout_p: is {tensors[3 + _DROPOUT_P]}, wanted 0 under vmap")
    batch = tensors[0].shape[is_mapped[0]]

    def joined(x: torch.Tensor, mapped: bool) -> torch.Tensor:
        """Returns [size, B, ...], or an unmapped [B, ...], as [size * B, ...]."""
        return (x if mapped else x.expand(size, *x.shape)).flatten(0, 1)

    for i in range(3):
        tensors[i] = joined(tensors[i], is_mapped[i])
    for i, name in enumerate(OPTIONAL_TENSORS, start=3):
        x, mapped, operand = tensors[i], is_mapped[i], OPERANDS[name]
        if x is None or not (operand.has_entries or mapped):
            continue
        if not operand.has_entries:
            raise UnsupportedError(f"{name}: is mapped by vmap, wanted it the same for all")
        if name == "alibi_slopes" and x.dim() == 1 + mapped:
            x = x.unsqueeze(-2)
        if x.shape[mapped] == 1 and operand.dims != "B":  # lengths do not broadcast
            if not mapped:
                tensors[i] = x
                continue
            x = x.expand(size, batch, *x.shape[2:])
        tensors[i] = joined(x, mapped)
    found = torch.ops.flashcore.attention(*tensors)
    asked = [x.dim() > 1 for x in found]  # the others are empty
    return (
        tuple(x.unflatten(0, (size, batch)) if a else x for x, a in zip(found, asked, strict=True)),
        tuple(0 if a else None for a in asked),
    )


def backward_batching_rule(
    info: Any, dims: tuple[int | None, ...], *arguments: Any
) -> tuple[Any, Any]:
    """The batching rule of the backward operator: one call per mapped entry.

    A gradient may be a sum over its entry's own batch, which a joined batch does not have.
    """
    entries = [
        torch.ops.flashcore.attention_backward(
            *(
                x if dim is None else x.select(dim, i)
                for x, dim in zip(arguments, dims, strict=True)
            )
        )
        for i in range(info.batch_size)
    ]
    stacked = tuple(torch.stack(of) for of in zip(*entries, strict=True))
    return stacked, (0,) * len(stacked)
