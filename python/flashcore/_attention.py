"""The operator, for the arrays of every framework."""

import inspect
from typing import Any, Literal, NoReturn

from ._backend import dropout_of, find, registered
from ._call import Call
from ._operands import Options
from ._options import refuse_unknown
from ._plan import cache, explained

Alignment = Literal["top_left", "bottom_right", "given"]
Window = tuple[int | None, int | None]


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
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
    v_transposed: bool = False,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    o_scale: Any = None,
    kv_scale_block: int = 0,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
    dropout_offset: int = 0,
    dropout_state: Any = None,
    out_dtype: Any = None,
    return_lse: bool = False,
    return_amax: bool = False,
    return_max_logit: bool = False,
    out: Any = None,
    out_lse: Any = None,
    kernel: str | None = None,
    threads: int = 0,
    batch_invariant: bool = False,
    early_start: bool = False,
    deterministic: bool = True,
    **unknown: NoReturn,
) -> Any:
    """softmax(Q K^T) V of NumPy, PyTorch, JAX, CuPy and other DLPack arrays, without copies.

    B batch, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv), Sq queries, Skv keys, Dqk
    and Dv head dimensions. "x|1": extent x, or 1 and broadcast. docs/semantics.md defines the
    result exactly. On a GPU the work is queued in the framework's current stream (JAX: done on
    return, and under jit in XLA's stream). A call allocates only its result and its workspace.

    Arguments
        q: [B, Hq, Sq, Dqk], or packed [total_q, Hq, Dqk]; float32, float16, bfloat16 or fp8.
        k: [B, Hkv, Skv, Dqk], or packed [total_kv, Hkv, Dqk]; dtype of q, or fp8; device of q.
        v: [B, Hkv, Skv, Dv], or packed [total_kv, Hkv, Dv]; dtype of k, or fp8 where k is fp8;
            device of q.
            Any strides; the last dimension of q, k and v must be contiguous.
        causal: query i sees key j when j <= i + offset; `alignment` sets the offset.
        softmax_scale: default 1 / sqrt(Dqk).
        softcap: above 0, scores become softcap * tanh(score / softcap).
        bias: [B|1, Hq|1, Sq|1, Skv|1], float32, float16 or bfloat16; added to the scores.
        mask: [B|1, Hq|1, Sq|1, Skv|1], bool; True: attend.
        alibi_slopes: [Hq] or [B|1, Hq], float32.
        sinks: [Hq], float32: one extra logit per head in the softmax denominator.
        window: (left, right) keys around the diagonal, each -1 or None for no limit.
        alignment: position of the diagonal: "top_left" (offset 0), "bottom_right" (the last query
            sees the last key), "given" (causal_offset, or causal_offsets, [B], int32).
        seqlens_q, seqlens_kv: [B], int32: numbers of queries and keys in use.
        cu_seqlens_q, cu_seqlens_kv: [B + 1], int32: a packed batch; max_seqlen_q and max_seqlen_kv
            are the lengths of the longest sequences, 0 if not known.
        v_transposed: v is [B, Hkv, Dv, columns], fp8, as `transpose_v` makes it.
        q_scale, k_scale, v_scale: [B|1, Hq|1], [B|1, Hkv|1, blocks|1] twice, float32, with fp8;
            kv_scale_block is the number of keys per block, 0 for one block.
        o_scale: [B|1, Hq|1], float32, for an fp8 result: stores O / o_scale, rounded to nearest
            even and saturated.
        dropout_p: in [0, 1]; above 0 it needs dropout_seed, and may have dropout_offset. PyTorch
            tensors without a seed get one from PyTorch's generator.
        dropout_state: [2], int64: a call reads seed and offset from this array when it runs,
            instead of dropout_seed and dropout_offset.
        out_dtype: dtype of the result; default: dtype of q.
        return_lse: also return the log of the softmax denominator.
        return_amax: also return the largest |O|, before o_scale and rounding, and the largest
            probability, before dropout, of each sequence and head.
        return_max_logit: also return the largest score of each sequence and head, as the softmax
            sees it: after softmax_scale, softcap, bias and ALiBi; -inf where no key is seen. For
            clipping Q and K in training, and for watching a model.
        out, out_lse: arrays to write the results to, instead of new arrays.
        kernel: a kernel's name, instead of the best kernel that computes the problem.
        threads: CPU threads; 0 for all.
        batch_invariant: a row's bits do not depend on the rest of the batch.
        early_start: on a GPU, a call may start before earlier work in its stream has ended; it
            waits for that work before it touches memory. Kernels that cannot do this ignore it.
        deterministic: for gradients through PyTorch and JAX: False allows atomic sums in any order.
            `attention` itself always repeats its bits.

    Returns
        O: [B, Hq, Sq, Dv], or packed [total_q, Hq, Dv], of the framework of q. With return_lse,
        return_amax or return_max_logit a tuple: O, then LSE, [B, Hq, Sq], or packed [total_q, Hq],
        float32; then amax_o and amax_s, and max_logit, each [B, Hq], float32.

    Raises
        ArgumentTypeError (a TypeError): not an array, or arrays of different frameworks.
        InvalidArgumentError (a ValueError): an invalid shape, stride, dtype, device or option, or
            an invalid combination.
        UnsupportedError (a NotImplementedError): no kernel of the device computes it.
        OutOfMemoryError, DeviceError, InternalError: see their classes.
        If an exception is raised, nothing has been written.
    """
    if unknown:
        refuse_unknown(attention, unknown)
    backend = registered.get(type(q)) or find("q", q)
    extras: tuple[Any, ...] | None = None
    if not (
        bias is None
        and mask is None
        and alibi_slopes is None
        and sinks is None
        and q_scale is None
        and k_scale is None
        and v_scale is None
        and o_scale is None
        and cu_seqlens_q is None
        and cu_seqlens_kv is None
        and seqlens_q is None
        and seqlens_kv is None
        and causal_offsets is None
        and dropout_state is None
    ):
        extras = (
            bias,
            mask,
            alibi_slopes,
            sinks,
            q_scale,
            k_scale,
            v_scale,
            cu_seqlens_q,
            cu_seqlens_kv,
            seqlens_q,
            seqlens_kv,
            causal_offsets,
            o_scale,
            dropout_state,
        )
    options = (
        causal,
        softmax_scale,
        softcap,
        alignment,
        causal_offset,
        window,
        dropout_p,
        out_dtype,
        return_lse,
        return_amax,
        return_max_logit,
        kv_scale_block,
        max_seqlen_q,
        max_seqlen_kv,
        v_transposed,
        kernel,
        threads,
        batch_invariant,
        early_start,
        deterministic,
    )
    dropout = None if dropout_p == 0 else dropout_of(dropout_seed, dropout_offset, dropout_state)
    outputs = None if out is None and out_lse is None else (out, out_lse)
    return backend.attention((q, k, v, extras, options, dropout, outputs))


_SIGNATURE = inspect.signature(attention)
DEFAULTS = Options._make(_SIGNATURE.parameters[name].default for name in Options._fields)


def options_of(keywords: dict[str, Any]) -> Options:
    """Returns the options in a call's keywords; missing ones have their defaults."""
    return Options._make(keywords.get(name, value) for name, value in DEFAULTS._asdict().items())


def explain(q: Any, k: Any, v: Any, **options: Any) -> list[dict[str, Any]]:
    """Returns every kernel's verdict on a problem, best first, from the arguments of `attention`.

    Each is a dict: kernel; refusal (why it cannot compute the problem, or ""); declines (why it
    leaves the problem to another kernel, or ""); note (what a caller should know, or ""); automatic
    (False for kernels that run only when asked for by name); chosen (True for the kernel that
    `attention` would run: at most one). Raises what `attention` raises for a malformed problem.
    """
    bound = _SIGNATURE.bind(q, k, v, **options)
    bound.apply_defaults()
    given = bound.arguments
    if given["unknown"]:
        refuse_unknown(attention, given["unknown"])
    backend = find("q", q)
    named = tuple(given[name] for name in Options._fields)
    outputs = (given["out"], given["out_lse"])
    return explained(backend.request(Call.of(given, named, None, outputs)))


def clear_plans() -> None:
    """Drops the plans of all problems seen so far.

    The environment variable FLASHCORE_KERNEL is read when a problem is first seen; call this after
    changing it, so that the next call reads it again.
    """
    cache.clear()
