"""Makes fp8 tensors and their scales in the form that attention takes."""

import itertools
from typing import Any, Literal, NamedTuple, NoReturn

from ._direct import DirectCall
from ._errors import InvalidArgumentError
from ._layout import F32, like
from ._library import QuantizeArguments, QuantizeProblem, library, sized
from ._options import flag, integer, refuse_unknown

_LARGEST = 2**31 - 1
_COLUMNS = 128  # columns of a transposed v are a multiple of this


class Quantized(NamedTuple):
    """The result of `quantize`: x is about `values * scale`, plus `mean` if there is one."""

    values: Any
    scale: Any
    mean: Any


def _scale_shape(
    shape: tuple[int, ...], batch: int, rows: int, scales: str, block: int | None
) -> tuple[int, ...]:
    per = {"tensor": (1, 1), "entry": (batch, 1), "head": (batch, shape[1])}.get(scales)
    if per is None:
        raise InvalidArgumentError(f"scales: is {scales!r}, wanted 'tensor', 'entry' or 'head'")
    if block is None:
        return per
    return (*per, -(-rows // (block or max(rows, 1))))


def quantize(
    x: Any,
    dtype: Any = "float8_e4m3fn",
    *,
    scales: Literal["tensor", "entry", "head"] = "head",
    block: int | None = None,
    smooth: bool = False,
    cu_seqlens: Any = None,
    seqlens: Any = None,
    max_seqlen: int = 0,
    threads: int = 0,
    **unknown: NoReturn,
) -> Quantized:
    """Converts a q, k or v to fp8 values and scales in the form that `attention` takes.

    docs/semantics.md defines the result exactly ("Quantisation").

    Arguments
        x: [B, H, S, D], or packed [total, H, D] with cu_seqlens; float32, float16 or bfloat16.
        dtype: float8_e4m3fn or float8_e5m2.
        scales: what has a scale of its own: "tensor", a sequence ("entry"), or its "head".
        block: None makes a scale for a q, [B|1, H|1]. A number makes scales for a k or v,
            [B|1, H|1, blocks], one for each block of this many rows: 1 is one per token, and 0 one
            block of all rows. It is the `kv_scale_block` of `attention`.
        smooth: subtract the mean of each channel over the rows first. For a k this does not change
            the output of attention, except with sinks or a softcap, and reduces the error if
            channels have an offset. LSE is less by softmax_scale * dot(q, mean).
        cu_seqlens: [B + 1], int32: where the rows of each sequence begin.
        seqlens: [B], int32: rows in use; others become 0.
        max_seqlen: packed: the most rows per sequence, as in `attention`; 0: not known.

    Returns
        values, scale, and mean: [B, H, D], or None.
    """
    if unknown:
        refuse_unknown(quantize, unknown)
    call = DirectCall({"x": x, "cu_seqlens": cu_seqlens, "seqlens": seqlens})
    first = call.first
    wanted = 4 if cu_seqlens is None else 3
    if len(first.shape) != wanted:
        raise InvalidArgumentError(
            f"x: shape {list(first.shape)} has rank {len(first.shape)}, wanted {wanted} "
            f"with{'out' if cu_seqlens is None else ''} cu_seqlens"
        )
    problem = sized(QuantizeProblem)
    problem.scale_block = 0 if block is None else integer("block", block, 0, _LARGEST)
    problem.max_seqlen = integer("max_seqlen", max_seqlen, 0, _LARGEST)
    if cu_seqlens is None:
        batch, rows = first.shape[0], first.shape[2]
    else:
        batch = max(0, call.layouts["cu_seqlens"].shape[0] - 1)
        rows = problem.max_seqlen or first.shape[0]
    shape = _scale_shape(
        first.shape, batch, rows, scales, None if block is None else problem.scale_block
    )
    code = call.backend.dtype("dtype", dtype)
    has_mean = flag("smooth", smooth)
    values = call.add("x_out", code, first.shape, like(first, first.shape))
    scale = call.add("scale", F32, shape)
    mean = call.add("mean", F32, (batch, first.shape[1], first.shape[-1])) if has_mean else None
    filled = call.fill(problem, sized(QuantizeArguments))
    call.run(library.flashcore_quantize, *filled, threads=threads)
    return Quantized(values, scale, mean)


def transpose_v(v: Any, *, columns: int = 0, threads: int = 0, **unknown: NoReturn) -> Any:
    """Transposes an fp8 v for `attention` with v_transposed.

    docs/semantics.md has the layout ("V stored transposed").

    Arguments
        v: [B, H, S, D], float8_e4m3fn or float8_e5m2.
        columns: columns of the result, a multiple of 128 and at least S, for a cache that grows; 0:
            as few as possible.

    Returns
        [B, H, D, columns], dtype of v. Columns without a row are 0.
    """
    if unknown:
        refuse_unknown(transpose_v, unknown)
    call = DirectCall({"v": v})
    given = call.first
    if len(given.shape) != 4:
        raise InvalidArgumentError(
            f"v: shape {list(given.shape)} has rank {len(given.shape)}, wanted 4 for [B, H, S, D]"
        )
    batch, heads, rows, width = given.shape
    wanted = integer("columns", columns, 0, _LARGEST) or -(-rows // _COLUMNS) * _COLUMNS
    out = call.add("v_out", given.dtype, (batch, heads, width, wanted))
    each = ((call.layouts[n].tensor(), call.backend.pointer(call.arrays[n])) for n in call.arrays)
    call.run(library.flashcore_transpose_v, *itertools.chain(*each), threads=threads)
    return out
