"""The tables of a call: dtypes and dimensions of each array that it takes or returns, and options.

Read by the checks of dtypes, by the structs of _library.py, and by the transforms that map a call
over a batch (_torch_vmap.py) or over devices (_jax_sharding.py).
"""

from collections import namedtuple
from typing import NamedTuple


class Operand(NamedTuple):
    dtypes: tuple[str, ...]
    dims: str  # "x|1": extent x, or 1 and broadcast

    @property
    def has_entries(self) -> bool:
        """Returns whether the first dimension, if it is not packed, is that of the batch."""
        return self.dims.split(" ")[0] in ("B", "B|1")

    @property
    def heads(self) -> str:
        """Returns "Hq", "Hkv", or "" for an operand without a dimension of heads."""
        return next((name for name in ("Hkv", "Hq") if name in self.dims), "")


_F32, _I32, _I64, _BOOL = (("float32",), ("int32",), ("int64",), ("bool",))
_F8 = ("float8_e4m3fn", "float8_e5m2")
_FLOATS = ("float32", "float16", "bfloat16")
_INPUTS = (*_FLOATS, *_F8)
_WIDE = ("float32", "float64")

OPERANDS = {
    name: Operand(dtypes, dims)
    for name, dtypes, dims in (
        # attention, decode
        ("q", _INPUTS, "B Hq Sq Dqk"),
        ("k", _INPUTS, "B Hkv Skv Dqk"),
        ("v", _INPUTS, "B Hkv Skv Dv"),
        ("bias", _FLOATS, "B|1 Hq|1 Sq|1 Skv|1"),
        ("mask", _BOOL, "B|1 Hq|1 Sq|1 Skv|1"),
        ("alibi_slopes", _F32, "B|1 Hq"),
        ("sinks", _F32, "Hq"),
        ("q_scale", _F32, "B|1 Hq|1"),
        ("k_scale", _F32, "B|1 Hkv|1 blocks|1"),
        ("v_scale", _F32, "B|1 Hkv|1 blocks|1"),
        ("cu_seqlens_q", _I32, "B+1"),
        ("cu_seqlens_kv", _I32, "B+1"),
        ("seqlens_q", _I32, "B"),
        ("seqlens_kv", _I32, "B"),
        ("causal_offsets", _I32, "B"),
        ("o_scale", _F32, "B|1 Hq|1"),
        ("dropout_state", _I64, "2"),
        ("out", (*_INPUTS, "float64"), "B Hq Sq Dv"),
        ("out_lse", _WIDE, "B Hq Sq"),
        ("amax_o", _F32, "B Hq"),
        ("amax_s", _F32, "B Hq"),
        ("max_logit", _F32, "B Hq"),
        # caches
        ("page_table", _I32, "B max_pages"),
        ("kv_indptr", _I32, "B+1"),
        ("kv_indices", _I32, "pages"),
        ("kv_last_page_len", _I32, "B"),
        ("cache_batch_idx", _I32, "B"),
        ("cache_leftpad", _I32, "B"),
        ("page_status", _I32, "1"),
        ("tree_mask", _I32, "B|1 Sq words"),
        # attention_backward
        ("lse", _WIDE, "B Hq Sq"),
        ("d_out", (*_FLOATS, "float64"), "B Hq Sq Dv"),
        ("d_lse", _WIDE, "B Hq Sq"),
        ("dq", (*_FLOATS, "float64"), "B Hq Sq Dqk"),
        ("dk", (*_FLOATS, "float64"), "B Hkv Skv Dqk"),
        ("dv", (*_FLOATS, "float64"), "B Hkv Skv Dv"),
        ("d_bias", (*_FLOATS, "float64"), "B|1 Hq|1 Sq|1 Skv|1"),
        ("d_sinks", _WIDE, "Hq"),
        ("d_alibi_slopes", _WIDE, "B|1 Hq"),
        # append
        ("k_new", _INPUTS, "B Hkv Snew Dqk"),
        ("v_new", _INPUTS, "B Hkv Snew Dv"),
        ("seqlens_new", _I32, "B"),
        ("cu_seqlens_new", _I32, "B+1"),
        ("rope_cos", _F32, "positions R/2"),
        ("rope_sin", _F32, "positions R/2"),
        # merge
        ("o_a", _FLOATS, "B Hq Sq Dv"),
        ("o_b", _FLOATS, "B Hq Sq Dv"),
        ("lse_a", _F32, "B Hq Sq"),
        ("lse_b", _F32, "B Hq Sq"),
        # quantize
        ("x", _FLOATS, "B H S D"),
        ("cu_seqlens", _I32, "B+1"),
        ("seqlens", _I32, "B"),
    )
}


# The keywords of `attention` that are not arrays, in the order of a plan's key.
Options = namedtuple(
    "Options",
    "causal softmax_scale softcap alignment causal_offset window dropout_p out_dtype "
    "return_lse return_amax return_max_logit kv_scale_block max_seqlen_q max_seqlen_kv "
    "v_transposed kernel threads batch_invariant early_start deterministic",
)

# The dtypes of arguments that are a dtype themselves.
DTYPES = {"out_dtype": OPERANDS["out"].dtypes, "grad_dtype": _WIDE, "dtype": _F8}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Groups of operands, in the order of the structs of flashcore.h.
_FIRST = _names(
    "bias mask alibi_slopes sinks q_scale k_scale v_scale "
    "cu_seqlens_q cu_seqlens_kv seqlens_q seqlens_kv causal_offsets"
)
OPTIONAL_TENSORS = (*_FIRST, "o_scale", "dropout_state")
CACHE_TENSORS = _names(
    "page_table kv_indptr kv_indices kv_last_page_len cache_leftpad page_status tree_mask"
)
# The outputs of largest values, by the option that asks for them.
LARGEST_OF = {"return_amax": ("amax_o", "amax_s"), "return_max_logit": ("max_logit",)}
LARGEST = tuple(name for names in LARGEST_OF.values() for name in names)
NO_LARGEST = dict.fromkeys(LARGEST_OF, False)
# A problem has numbers between these groups.
FIRST_TENSORS = ("q", "k", "v", "o", "lse", *_FIRST)
LAST_TENSORS = ("dropout_state", *CACHE_TENSORS, "o_scale", "amax_o", "amax_s")
LATER_TENSORS = ("max_logit",)
GRADIENT_TENSORS = _names("d_o dq dk dv d_lse d_bias d_sinks d_alibi_slopes")
APPEND_TENSORS = _names(
    "k_new v_new k v seqlens_kv seqlens_new cu_seqlens_new page_table kv_indptr kv_indices "
    "cache_leftpad page_status k_scale v_scale rope_cos rope_sin q q_out"
)
MERGE_TENSORS = _names("o_a o_b lse_a lse_b o lse")
QUANTIZE_TENSORS = _names("x x_out scale mean cu_seqlens seqlens")
