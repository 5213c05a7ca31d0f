"""transformers: attn_implementation="flashcore".

>>> import flashcore.transformers
>>> flashcore.transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="flashcore")
"""

import contextlib
import functools
import sys
import warnings
from typing import Any

import torch
from transformers import AttentionInterface

from ._errors import InvalidArgumentError, UnsupportedError
from ._torch import is_recorded
from .torch import attention, autocast, of_mask

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

    The mask has the form of "sdpa": None, or bool [B, 1, Sq, Skv] that includes causality, padding
    and window. Without a mask, is_causal and sliding_window say which keys a query sees: the last
    sliding_window keys, or, if not causal, as many in both directions. Grouped key/value heads are
    read in place, never repeated. position_bias is added to the scores. Beyond "sdpa" it takes a
    softcap and sinks (s_aux), and fp8 keys and values of a cache under a wider query, with k_scale
    and v_scale ([B|1, Hkv|1, blocks|1], float32) among the model's keywords.

    Packed sequences (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k) do not attend to
    each other, with or without a mask. Continuous batching passes them with its paged cache; the
    new keys and values are written there first.
    """
    if options.get("block_table") is not None:
        raise UnsupportedError("block_table: is given, wanted None; set max_blocks_per_request=0")
    config = getattr(module, "config", None)
    if options.get("output_attentions", getattr(config, "output_attentions", False)):
        _warn_of_weights()
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal)
    if cache is not None:
        key, value = cache.update(
            key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=options
        )
        attention_mask = None  # it covers the new keys only
    query, key, value, attention_mask, position_bias = autocast(
        query, key, value, attention_mask, position_bias
    )
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    left = -1 if sliding_window is None else sliding_window - 1
    of_scores: dict[str, Any] = {
        "softmax_scale": scaling,
        "softcap": softcap or 0.0,
        "sinks": None if s_aux is None else s_aux.float(),
        "dropout_p": dropout,
    }
    for name in ("k_scale", "v_scale", "deterministic"):
        if options.get(name) is not None:
            of_scores[name] = options[name]
    seen: dict[str, Any] = {"causal": causal, "window": (left, -1 if causal else left)}
    starts = _starts(options)
    packed = None if position_bias is not None else starts
    if packed is not None and _says_no_more(attention_mask, packed, **seen):
        batch = query.shape[0]
        query, key, value = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
        out = attention(
            query,
            key,
            value,
            cu_seqlens_q=packed[0],
            cu_seqlens_kv=packed[1],
            max_seqlen_q=int(options.get("max_length_q") or 0),
            max_seqlen_kv=int(options.get("max_length_k") or 0),
            **seen,
            **of_scores,
        )
        return out.unflatten(0, (batch, -1)), None
    given = of_mask(attention_mask)
    if given:
        seen = {}
    elif query.shape[2] == 1:  # the last query, which sees all keys
        seen["causal"] = False
    if starts is not None:
        same = _same_sequence(starts, query.shape[0], query.shape[2], key.shape[2])
        given["mask"] = given["mask"] & same if "mask" in given else same
    if position_bias is not None:
        given["bias"] = position_bias + given["bias"] if "bias" in given else position_bias
    out = attention(
        query,
        key,
        value,
        alignment="top_left" if seen.get("causal") else "bottom_right",
        **given,
        **seen,
        **of_scores,
    )
    return out.transpose(1, 2).contiguous(), None


def _say_no_weights() -> None:
    warnings.warn(
        "output_attentions: flashcore never has the weights of attention, so there are none in the "
        'result; attn_implementation="eager" has them',
        stacklevel=3,
    )


# Under torch.compile the warning appears when the graph is made.
_warn_of_weights: Any = torch.compiler.assume_constant_result(_say_no_weights)


def _starts(options: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Returns the starts of packed sequences, for queries and for keys."""
    names = ("cu_seq_lens_q", "cu_seq_lens_k")
    missing = [name for name in names if options.get(name) is None]
    if len(missing) == 1:
        raise InvalidArgumentError(f"{missing[0]}: is None, wanted both of {' and '.join(names)}")
    return None if missing else (options[names[0]].int(), options[names[1]].int())


def _says_no_more(
    mask: torch.Tensor | None,
    starts: tuple[torch.Tensor, torch.Tensor],
    causal: bool,
    window: tuple[int, int],
) -> bool:
    """Returns whether the mask of packed sequences only repeats causality and window.

    transformers makes such a mask for the whole row, and does not know its sequences.
    """
    if mask is None:
        return True
    if is_recorded(mask.device):  # values are not available now
        return False
    if mask.dtype is not torch.bool or mask.shape[-1] != mask.shape[-2]:
        return False
    if not torch.equal(*starts):
        return False
    band = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device)
    if window[0] >= 0:
        band = band.triu(-window[0])
    right = 0 if causal else window[1]
    if causal or right >= 0:
        band = band.tril(right)
    return torch.equal(mask, band.expand_as(mask))


def _same_sequence(
    starts: tuple[torch.Tensor, torch.Tensor], batch: int, queries: int, keys: int
) -> torch.Tensor:
    """Returns bool [B, 1, Sq, Skv]: True if query and key are in the same sequence."""
    of = [
        torch.bucketize(torch.arange(batch * n, device=x.device, dtype=x.dtype), x, right=True)
        for x, n in zip(starts, (queries, keys), strict=True)
    ]
    return of[0].view(batch, 1, queries, 1) == of[1].view(batch, 1, 1, keys)


def register(name: str = "flashcore") -> None:
    """Registers the attention function, and the kind of mask that it takes, under this name.

    A model that computes its attention itself, such as Bloom, would take this mask for another
    kind: it is refused.

    transformers takes every name with "flash" in it for a package of flash attention kernels, which
    it would load, and whose calling conventions it would follow. This name is exempted, except in
    continuous batching (`generate_batch`), which passes its packed sequences only to such a
    name.
    """
    AttentionInterface.register(name, attention_forward)
    _not_flash_attention(name)
    try:
        from transformers import AttentionMaskInterface
    except ImportError:  # an older transformers: masks are chosen by other means
        return
    from transformers.masking_utils import sdpa_mask

    def mask(*sizes: Any, config: Any = None, **options: Any) -> torch.Tensor | None:
        _refuse_own_attention(type(config))
        return sdpa_mask(*sizes, config=config, **options)

    AttentionMaskInterface.register(name, mask)


@functools.cache
def _computes_itself(config: type) -> bool:
    """Returns whether the models of a configuration call no attention function."""
    name = config.__module__.replace(".configuration_", ".modeling_")
    source = vars(sys.modules[name]) if name in sys.modules else {}
    own = [x for x in source.values() if isinstance(x, type) and x.__module__ == name]
    attends = any("Attention" in x.__name__ and issubclass(x, torch.nn.Module) for x in own)
    return attends and "ALL_ATTENTION_FUNCTIONS" not in source


def _say_own_attention(config: type) -> None:
    if _computes_itself(config):
        raise UnsupportedError(
            f"attn_implementation: models of {config.__name__} compute attention themselves, "
            "wanted eager"
        )


# Under torch.compile this is checked when the graph is made.
_refuse_own_attention: Any = torch.compiler.assume_constant_result(_say_own_attention)


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
    with contextlib.suppress(ImportError):  # an older transformers does not have it
        import transformers.generation.continuous_batching  # noqa: F401, before the change below

    @functools.wraps(original)
    def is_flash_attention_requested(
        config: Any = None, requested_attention_implementation: str | None = None, **options: Any
    ) -> bool:
        asked = requested_attention_implementation
        if config is not None and asked is None:
            asked = config._attn_implementation
        if asked in _names:
            if config is not None:
                _refuse_own_attention(type(config))
            return False
        return bool(original(config, requested_attention_implementation, **options))

    # Already imported modules hold it under its name; later ones get it from `generic`.
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_CONTINUOUS_BATCHING):
            continue
        if module_name.partition(".")[0] == "transformers":
            members = vars(module)
            if members.get(_ASKED) is original:
                members[_ASKED] = is_flash_attention_requested
