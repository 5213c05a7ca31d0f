"""transformers: attn_implementation="flashcore".

>>> import flashcore.transformers
>>> flashcore.transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="flashcore")
"""

import contextlib
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
    sliding_window: int | None = None,
    cache: Any = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: [B, H, S, D] in, [B, S, H, D] out, no weights.

    The mask is that of "sdpa": None, or bool [B, 1, Sq, Skv] that holds causality, padding and
    window. Grouped key/value heads are read in place, never repeated. Beyond "sdpa" it takes a
    softcap and sinks (s_aux), and keys and values of a cache in fp8 under a wider query, with
    k_scale and v_scale ([B|1, Hkv|1, blocks|1], float32) among the model's keywords.

    Packed sequences (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k) need no mask. Those
    of continuous batching come with its paged cache, into which the new keys and values go first.
    """
    if position_bias is not None:
        raise UnsupportedError("position_bias: is given, wanted None; use attn_implementation sdpa")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal)
    if cache is not None:
        if options.get("block_table") is not None:
            raise UnsupportedError(
                "block_table: is given, wanted None; set max_blocks_per_request=0"
            )
        key, value = cache.update(
            key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=options
        )
        attention_mask = None  # of the new keys alone
    query, key, value, attention_mask = autocast(query, key, value, attention_mask)
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    of_scores: dict[str, Any] = {
        "softmax_scale": scaling,
        "softcap": softcap or 0.0,
        "sinks": None if s_aux is None else s_aux.float(),
        "dropout_p": dropout,
    }
    for scale in ("k_scale", "v_scale"):
        if options.get(scale) is not None:
            of_scores[scale] = options[scale]
    if dropout != 0.0:
        of_scores |= draw_dropout(query.device)
    if attention_mask is None and options.get("cu_seq_lens_q") is not None:
        # One row of the batch holds all sequences.
        query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
        out = attention(
            query,
            key,
            value,
            causal=causal,
            window=(-1 if sliding_window is None or not causal else sliding_window - 1, -1),
            cu_seqlens_q=options["cu_seq_lens_q"].int(),
            cu_seqlens_kv=options["cu_seq_lens_k"].int(),
            max_seqlen_q=int(options.get("max_length_q") or 0),
            max_seqlen_kv=int(options.get("max_length_k") or 0),
            **of_scores,
        )
        return out.unsqueeze(0), None
    is_mask = attention_mask is not None and attention_mask.dtype is torch.bool
    out = attention(
        query,
        key,
        value,
        causal=query.shape[2] > 1 and attention_mask is None and causal,
        alignment="top_left",
        mask=attention_mask if is_mask else None,
        bias=None if is_mask else attention_mask,
        **of_scores,
    )
    return out.transpose(1, 2).contiguous(), None


def register(name: str = "flashcore") -> None:
    """Adds the attention function, and the mask that it takes, under this name.

    transformers takes every name with "flash" in it for a package of flash attention kernels, which
    it would load, and whose calling conventions it would follow. It is told not to for this name,
    except in continuous batching (`generate_batch`), which gives its packed sequences only to such
    a name.
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
_CONTINUOUS_BATCHING = "transformers.generation.continuous_batching"


def _not_flash_attention(name: str) -> None:
    _names.add(name)
    if len(_names) > 1:
        return
    from transformers.utils import generic

    original = getattr(generic, _ASKED, None)
    if original is None:
        return
    with contextlib.suppress(ImportError):  # an older transformers has none
        import transformers.generation.continuous_batching  # noqa: F401, before the change below

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
        if module_name.startswith(_CONTINUOUS_BATCHING):
            continue
        if module_name.partition(".")[0] == "transformers":
            members = vars(module)
            if members.get(_ASKED) is original:
                members[_ASKED] = is_flash_attention_requested
