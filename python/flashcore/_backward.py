"""The backward pass: its plans, and the call shared by all frameworks."""

from collections.abc import Hashable, Sequence
from ctypes import addressof, byref, c_void_p
from typing import Any, NamedTuple

from ._call import Call
from ._errors import InvalidArgumentError
from ._layout import CODES, F32, NAMES, Layout, dense_strides, like
from ._library import (
    BACKWARD_WORDS,
    Arguments,
    BackwardArguments,
    GradientTensors,
    check,
    fill,
    library,
    sized,
    with_defaults,
)
from ._operands import NO_LARGEST, Options
from ._options import plan_options
from ._plan import AnyPlan, Request, announce, cache, describe

OUTPUTS = ("dq", "dk", "dv", "d_bias", "d_sinks", "d_alibi_slopes")
OPTIONAL_OUTPUTS = OUTPUTS[3:]

_F64 = CODES["float64"]


class Gradients(NamedTuple):
    """The result of `attention_backward`. Gradients that were not requested are None."""

    dq: Any
    dk: Any
    dv: Any
    d_bias: Any = None
    d_sinks: Any = None
    d_alibi_slopes: Any = None


class BackwardCall(NamedTuple):
    """The arguments of `attention_backward`."""

    arrays: dict[str, Any]  # the present ones, by name, OUTPUTS last
    asked: tuple[str, ...]  # the requested OPTIONAL_OUTPUTS
    grad_dtype: Any
    options: Options
    dropout: tuple[Any, Any] | None  # seed and offset


class BackwardPlan(AnyPlan):
    """A backward plan, and the layouts of its outputs."""

    __slots__ = ("outputs",)

    def __init__(self, request: Request, asked: tuple[str, ...], grad_dtype: int | None):
        problem, *_ = describe(request)
        self.outputs = _outputs(request.layouts, asked, grad_dtype)
        gradients = with_defaults(GradientTensors)
        fill(gradients, Layout.tensor, request.layouts | self.outputs)
        options = plan_options(request.options, request.q.device)
        handle = c_void_p()
        created = library.flashcore_backward_plan_create(problem, gradients, options, byref(handle))
        check(created, BACKWARD_WORDS)
        announce(problem, request, backward=True)
        super().__init__(handle, request.q.device)


def _outputs(
    layouts: dict[str, Layout], asked: Sequence[str], grad_dtype: int | None
) -> dict[str, Layout]:
    """Layouts of given arrays are unchanged. New ones have the memory order of their tensor."""
    found = {}
    for name in (*OUTPUTS[:3], *asked):
        belongs_to = name.removeprefix("d_" if name.startswith("d_") else "d")
        layout = layouts.get(name)
        if layout is None:
            of = layouts.get(belongs_to)
            if of is None:
                raise InvalidArgumentError(
                    f"{name}: is asked for, wanted it only with {belongs_to}"
                )
            if name in ("d_sinks", "d_alibi_slopes"):
                dtype, stride = _F64 if grad_dtype == _F64 else F32, dense_strides(of.shape)
            else:
                dtype = of.dtype if grad_dtype is None else grad_dtype
                stride = like(of, of.shape)
            layout = Layout(dtype, of.shape, stride, of.device)
        found[name] = layout
    return found


def compute(backend: Any, call: BackwardCall) -> Gradients:
    """Computes the gradients, after O and LSE if these are not given."""
    call = _with_forward(backend, call)
    plan = _plan(backend, call)
    arrays = call.arrays
    q = arrays["q"]
    outputs = {}
    for name, layout in plan.outputs.items():
        if name in arrays:
            backend.check_writable(name, arrays[name])
        outputs[name] = arrays[name] if name in arrays else backend.empty(layout, q)
    forward = fill(sized(Arguments), backend.pointer, arrays)
    forward.dropout_seed, forward.dropout_offset = call.dropout or (0, 0)
    arguments = sized(BackwardArguments)
    arguments.forward = addressof(forward)
    fill(arguments, backend.pointer, arrays | outputs)
    run = library.flashcore_plan_run_backward
    check(backend.launch(plan, q, run, plan.handle, arguments), BACKWARD_WORDS)
    return Gradients(**outputs)


def refuse_fp8(dtypes: dict[str, str]) -> None:
    """Raises if q, k or out is fp8; `dtypes` maps their names."""
    for name, dtype in dtypes.items():
        if "float8" in dtype:
            raise InvalidArgumentError(
                f"{name}: dtype is {dtype}, which has no backward pass, wanted float32, float16 or "
                "bfloat16"
            )


def _check_dtypes(backend: Any, arrays: dict[str, Any]) -> None:
    given = [name for name in ("q", "k", "out") if name in arrays]
    refuse_fp8({name: NAMES[backend.layout(name, arrays[name]).dtype] for name in given})


def _with_forward(backend: Any, call: BackwardCall) -> BackwardCall:
    arrays = call.arrays
    for name, other in (("out", "lse"), ("lse", "out")):
        if name not in arrays and other in arrays:
            raise InvalidArgumentError(
                f"{name}: is None, wanted it with {other}, as the forward pass left both, or "
                "neither"
            )
    if "out" in arrays:
        return call
    _check_dtypes(backend, arrays)
    layout = backend.layout("d_out", arrays["d_out"])
    options = call.options._replace(
        out_dtype=NAMES[layout.dtype],
        return_lse=True,
        **NO_LARGEST,
        kernel=None,
        early_start=False,
    )
    out, lse = backend.compute(Call.of(arrays, tuple(options), call.dropout))
    return call._replace(arrays=arrays | {"out": out, "lse": lse})


def _plan(backend: Any, call: BackwardCall) -> BackwardPlan:
    arrays = call.arrays
    # The dtype itself, which is hashable, for any notation of the caller.
    grad_dtype = call.grad_dtype
    if grad_dtype is not None:
        grad_dtype = backend.dtype("grad_dtype", grad_dtype)
    keys = [(name, backend.key(array)) for name, array in arrays.items()]
    key: Hashable = ("backward", tuple(keys), call.asked, grad_dtype, call.options)
    plan = cache.get(key)
    if plan is None:
        _check_dtypes(backend, arrays)
        layouts = {name: backend.layout(name, array) for name, array in arrays.items()}
        request = Request(layouts | {"out_lse": layouts["lse"]}, call.options)
        plan = cache.put(key, BackwardPlan(request, call.asked, grad_dtype))
    return plan
