"""PyTorch's jagged nested tensors: packed batches, for scaled_dot_product_attention."""

from typing import Any

import torch

from ._attention import attention
from ._errors import InvalidArgumentError, UnsupportedError


def _packed(argument: str, x: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the values [total, H, D] and the sequences' starts [B + 1], without copying values.

    x is a jagged [B, S, H, D] viewed as [B, H, S, D], as PyTorch's own call wants it, too.
    """
    is_jagged = x.is_nested and x.layout is torch.jagged and x.dim() == 4
    if not is_jagged or x._ragged_idx != 2 or x.lengths() is not None:
        raise UnsupportedError(
            f"{argument}: wanted all three tensors nested, layout=torch.jagged, "
            "[B, H, lengths, D] without holes, or none of them nested"
        )
    return x.values().transpose(0, 1), x.offsets().to(torch.int32)


def jagged_attention(
    query: Any,  # tensors with offsets()
    key: Any,
    value: Any,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """The result is jagged like query."""
    if attn_mask is not None:
        raise UnsupportedError("attn_mask: is given with nested tensors, wanted None")
    q, starts_q = _packed("query", query)
    k, starts_kv = _packed("key", key)
    v, starts_v = _packed("value", value)
    # Tensors made with the same offsets need no comparison, for which a GPU would have to wait.
    if value.offsets() is not key.offsets() and not torch.equal(starts_kv, starts_v):
        raise InvalidArgumentError("value: has other lengths than key, wanted the same")
    out: Any = attention(
        q,
        k,
        v,
        causal=is_causal,
        alignment="top_left",
        softmax_scale=scale,
        cu_seqlens_q=starts_q,
        cu_seqlens_kv=starts_kv,
        dropout_p=dropout_p,
    )
    return torch.nested.nested_tensor_from_jagged(out, query.offsets()).transpose(1, 2)
