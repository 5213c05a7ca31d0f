"""The operator's gradients, for the arrays of every framework."""

from functools import lru_cache
from typing import Any, NoReturn

from ._attention import DEFAULTS, Alignment, Window, options_of
from ._backend import dropout_of, find, hashable, is_array, seeds
from ._backward import OPTIONAL_OUTPUTS, BackwardCall, BackwardPlan, Gradients
from ._errors import Error
from ._layout import F32, Layout, dense_strides
from ._operands import OPTIONAL_TENSORS, Options
from ._options import flag, refuse_unknown
from ._plan import Request


def attention_backward(
    d_out: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any = None,
    lse: Any = None,
    *,
    d_lse: Any = None,
    causal: bool = False,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    mask: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    window: Window | None = (-1, -1),
    alignment: Alignment = "bottom_right",
    causal_offset: int = 0,
    causal_offsets: Any = None,
    seqlens_q: Any = None,
    seqlens_kv: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
    dropout_offset: int = 0,
    dropout_state: Any = None,
    grad_dtype: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    d_bias: Any = False,
    d_sinks: Any = False,
    d_alibi_slopes: Any = False,
    kernel: str | None = None,
    threads: int = 0,
    batch_invariant: bool = False,
    deterministic: bool = True,
    **unknown: NoReturn,
) -> Gradients:
    """The gradients of `attention`, for the same arrays and options.

    They are the derivatives of sum(d_out * O) + sum(d_lse * LSE). docs/semantics.md defines them
    exactly. Each has the shape of its tensor, and is summed over the dimensions in which that
    tensor has extent 1. PyTorch and JAX call this themselves when they differentiate `attention`.

    Arguments
        d_out: the gradient of O: shape and dtype of `out`; the last dimension must be contiguous.
        q, k, v: as for `attention`; float32, float16 or bfloat16.
        out, lse: the results of `attention(..., return_lse=True)`. Computed if not given.
        d_lse: the gradient of LSE: [B, Hq, Sq], or packed [total_q, Hq], float32.
        causal ... max_seqlen_kv, dropout_p ... dropout_state: same as in the forward pass.
        grad_dtype: float32, or float64 (the reference only), for dq, dk, dv and d_bias; default:
            the dtypes of q, k, v and the bias.
        dq, dk, dv: arrays to write the gradients to, instead of new arrays.
        d_bias, d_sinks, d_alibi_slopes: True to compute that gradient too, or an array for it.
        kernel: the name of a kernel with a backward pass, instead of the best one.
        threads, batch_invariant: as for `attention`.
        deterministic: the same bits in every run; False allows atomic sums in any order.

    Returns
        Gradients: a named tuple of dq, dk, dv, d_bias, d_sinks and d_alibi_slopes, arrays of the
        framework of q; None for gradients that were not requested.

    Raises what `attention` raises.
    """
    if unknown:
        refuse_unknown(attention_backward, unknown)
    given = locals()
    backend = find("q", q)
    options = options_of(given)._replace(return_lse=True)
    optional = ("out", "lse", *OPTIONAL_TENSORS, "d_lse", "dq", "dk", "dv")
    arrays = {"q": q, "k": k, "v": v, "d_out": d_out}
    arrays |= {name: given[name] for name in optional if given.get(name) is not None}
    asked = []
    for name, value in zip(OPTIONAL_OUTPUTS, (d_bias, d_sinks, d_alibi_slopes), strict=True):
        if not isinstance(value, bool) and is_array(value):
            arrays[name] = value
            asked.append(name)
        elif flag(name, value, "True, False or an array to write into"):
            asked.append(name)
    dropout = dropout_of(dropout_seed, dropout_offset, dropout_state) if dropout_p else None
    return backend.backward(
        BackwardCall(
            arrays=arrays,
            asked=tuple(asked),
            grad_dtype=grad_dtype,
            options=Options._make(hashable(options)),
            dropout=None if dropout is None else seeds(dropout),
        )
    )


@lru_cache(maxsize=256)
def differentiates(device: tuple[int, int], dtype: int, head_dim_qk: int, head_dim_v: int) -> bool:
    """Returns whether a device has a backward pass for such heads, without other options."""

    def layout(*shape: int, dtype: int = dtype) -> Layout:
        return Layout(dtype, shape, dense_strides(shape), device)

    q, v = layout(1, 1, 8, head_dim_qk), layout(1, 1, 8, head_dim_v)
    options = DEFAULTS._replace(return_lse=True)
    layouts = {"q": q, "k": q, "v": v, "d_out": v, "out": v, "out_lse": layout(1, 1, 8, dtype=F32)}
    try:
        BackwardPlan(Request(layouts, options), (), None)
    except Error:
        return False
    return True
