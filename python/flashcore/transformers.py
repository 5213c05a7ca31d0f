"""transformers: attn_implementation="flashcore".

>>> import flashcore.transformers
>>> flashcore.transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="flashcore")
"""

import functools
import sys
from typing import Any

import torch
from transformers import AttentionInterface

from ._errors import UnsupportedError
from ._torch import draw_dropout
from .torch import attention, autocast

__all__ = ["attention_forward", "register"]


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: [B, H, S, D] in, [B, S, H, D] out, no weights.

    The mask is that of "sdpa": None, or bool [B, 1, Sq, Skv] that holds causality, padding and
    window. Grouped key/value heads are read in place, never repeated. Beyond "sdpa" it takes a
    softcap and sinks (s_aux).
    """
    if position_bias is not None:
        raise UnsupportedError("position_bias: is given, wanted None; use attn_implementation sdpa")
    if options.get("cache") is not None:
        raise UnsupportedError("cache: is paged, wanted None; use attn_implementation sdpa")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = query.shape[2] > 1 and attention_mask is None and bool(is_causal)
    query, key, value, attention_mask = autocast(query, key, value, attention_mask)
    bias = mask = None
    if attention_mask is not None:
        if attention_mask.dtype is torch.bool:
            mask = attention_mask
        else:
            bias = attention_mask
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    out = attention(
        query,
        key,
        value,
        causal=causal,
        alignment="top_left",
        softmax_scale=scaling,
        softcap=softcap or 0.0,
        sinks=None if s_aux is None else s_aux.float(),
        bias=bias,
        mask=mask,
        dropout_p=dropout,
        **draw_dropout(query.device) if dropout != 0.0 else {},
    )
    return out.transpose(1, 2).contiguous(), None


def register(name: str = "flashcore") -> None:
    """Adds the attention function, and the mask that it takes, under this name.

    transformers takes every name with "flash" in it for a package of flash attention kernels, which
    it would load, and whose calling conventions it would follow. It is told not to for this name.
    """
    AttentionInterface.register(name, attention_forward)
    _not_flash_attention(name)
    try:
        from transformers import AttentionMaskInterface
    except ImportError:  # an older transformers: masks are chosen by other means
        return
    from transformers.masking_utils import sdpa_mask

    AttentionMaskInterface.register(name, sdpa_mask)


_names: set[str] = set()
_ASKED = "is_flash_attention_requested"


def _not_flash_attention(name: str) -> None:
    _names.add(name)
    if len(_names) > 1:
        return
    from transformers.utils import generic

    original = getattr(generic, _ASKED, None)
    if original is None:
        return

    @functools.wraps(original)
    def is_flash_attention_requested(
        config: Any = None, requested_attention_implementation: str | None = None, **options: Any
    ) -> bool:
        asked = requested_attention_implementation
        if config is not None and asked is None:
            asked = config._attn_implementation
        if asked in _names:
            return False
        return bool(original(config, requested_attention_implementation, **options))

    # Modules that are imported already have it under its name; later ones get it from `generic`.
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "transformers":
            members = vars(module)
            if members.get(_ASKED) is original:
                members[_ASKED] = is_flash_attention_requested
