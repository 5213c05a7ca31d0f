"""Makes fp8 tensors and their scales in the form that attention takes."""

from ctypes import byref, sizeof
from typing import Any, Literal, NamedTuple, NoReturn

from ._backend import find, registered
from ._errors import InvalidArgumentError
from ._layout import F32, Layout, dense_strides, like
from ._library import (
    CPU,
    QUANTIZE_TENSORS,
    QuantizeArguments,
    QuantizeProblem,
    check,
    library,
    new_plan_options,
)
from ._options import flag, integer, refuse_unknown
from ._plan import check_devices

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
    backend = registered.get(type(x)) or find("x", x)
    arrays = {"x": x, "cu_seqlens": cu_seqlens, "seqlens": seqlens}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    backend.check_arrays(arrays.items())
    layouts = {name: backend.layout(name, array) for name, array in arrays.items()}
    first = layouts["x"]
    check_devices(first, {name: layout for name, layout in layouts.items() if name != "x"})
    wanted = 4 if cu_seqlens is None else 3
    if len(first.shape) != wanted:
        raise InvalidArgumentError(
            f"x: shape {list(first.shape)} has rank {len(first.shape)}, wanted {wanted} "
            f"with{'out' if cu_seqlens is None else ''} cu_seqlens"
        )
    problem = QuantizeProblem(struct_size=sizeof(QuantizeProblem))
    problem.scale_block = 0 if block is None else integer("block", block, 0, _LARGEST)
    problem.max_seqlen = integer("max_seqlen", max_seqlen, 0, _LARGEST)
    if cu_seqlens is None:
        batch, rows = first.shape[0], first.shape[2]
    else:
        batch = max(0, layouts["cu_seqlens"].shape[0] - 1)
        rows = problem.max_seqlen or first.shape[0]
    shape = _scale_shape(
        first.shape, batch, rows, scales, None if block is None else problem.scale_block
    )
    outputs = {
        "x_out": Layout(
            backend.dtype("dtype", dtype), first.shape, like(first, first.shape), first.device
        ),
        "scale": Layout(F32, shape, dense_strides(shape), first.device),
    }
    if flag("smooth", smooth):
        shape = (batch, first.shape[1], first.shape[-1])
        outputs["mean"] = Layout(F32, shape, dense_strides(shape), first.device)
    made = {name: backend.empty(layout, x) for name, layout in outputs.items()}
    for name, array in made.items():
        backend.check_writable(name, array)
    arguments = QuantizeArguments(struct_size=sizeof(QuantizeArguments))
    for name in QUANTIZE_TENSORS:
        if name in layouts or name in outputs:
            setattr(problem, name, (layouts | outputs)[name].tensor())
            setattr(arguments, name, backend.pointer((arrays | made)[name]))
    options = new_plan_options()
    options.device_kind, options.device_index = first.device
    options.threads = integer("threads", threads, 0, _LARGEST)
    stream = None if first.device[0] == CPU else backend.stream(x)
    check(library.flashcore_quantize(byref(problem), byref(arguments), byref(options), stream))
    return Quantized(made["x_out"], made["scale"], made.get("mean"))


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
    backend = registered.get(type(v)) or find("v", v)
    backend.check_arrays([("v", v)])
    given = backend.layout("v", v)
    if len(given.shape) != 4:
        raise InvalidArgumentError(
            f"v: shape {list(given.shape)} has rank {len(given.shape)}, wanted 4 for [B, H, S, D]"
        )
    batch, heads, rows, width = given.shape
    wanted = integer("columns", columns, 0, _LARGEST) or -(-rows // _COLUMNS) * _COLUMNS
    shape = (batch, heads, width, wanted)
    made = Layout(given.dtype, shape, dense_strides(shape), given.device)
    out = backend.empty(made, v)
    backend.check_writable("v_out", out)
    options = new_plan_options()
    options.device_kind, options.device_index = given.device
    options.threads = integer("threads", threads, 0, _LARGEST)
    stream = None if given.device[0] == CPU else backend.stream(v)
    check(
        library.flashcore_transpose_v(
            byref(given.tensor()),
            backend.pointer(v),
            byref(made.tensor()),
            backend.pointer(out),
            byref(options),
            stream,
        )
    )
    return out
