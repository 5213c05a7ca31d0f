"""The backward pass: its plans, and the call shared by all frameworks."""

from collections.abc import Hashable, Sequence
from ctypes import Array, addressof, byref, c_uint64, c_void_p, sizeof
from typing import Any, NamedTuple

from ._errors import InvalidArgumentError
from ._layout import CODES, F32, NAMES, Layout, dense_strides, like
from ._library import (
    BACKWARD_WORDS,
    CPU,
    OPTIONAL_TENSORS,
    GradientTensors,
    check,
    error,
    library,
    new_gradients,
    new_plan_options,
)
from ._options import Options, fill_plan_options
from ._plan import AnyPlan, Request, announce, cache, check_devices, describe

INPUTS = ("q", "k", "v", "out", "lse", *OPTIONAL_TENSORS, "d_out", "d_lse")
OUTPUTS = ("dq", "dk", "dv", "d_bias", "d_sinks", "d_alibi_slopes")
OPTIONAL_OUTPUTS = OUTPUTS[3:]

_F64 = CODES["float64"]
# flashcore_arguments, and flashcore_backward_arguments; all members have 8 bytes.
_ForwardArguments = c_uint64 * (len(OPTIONAL_TENSORS) + 7)  # without O's scale
_Arguments = c_uint64 * 10


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

    arrays: dict[str, Any]  # the present ones, by name: INPUTS, then OUTPUTS
    asked: tuple[str, ...]  # the requested OPTIONAL_OUTPUTS
    grad_dtype: Any
    options: Options
    dropout: tuple[Any, Any] | None  # seed and offset

    def extras(self) -> list[Any] | None:
        """Returns the optional inputs of the forward pass."""
        found = [self.arrays.get(name) for name in OPTIONAL_TENSORS]
        return None if all(x is None for x in found) else found


class BackwardPlan(AnyPlan):
    """A backward plan, and the layouts of its outputs."""

    __slots__ = ("outputs",)

    def __init__(
        self,
        request: Request,
        layouts: dict[str, Layout],
        asked: tuple[str, ...],
        grad_dtype: int | None,
    ):
        check_devices(request.q, layouts)  # type: ignore[arg-type]
        problem, *_ = describe(request)
        self.outputs = _outputs(layouts, asked, grad_dtype)
        gradients = _gradients(layouts | self.outputs)
        options = new_plan_options()
        fill_plan_options(options, request.options, request.q.device)
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


def _gradients(layouts: dict[str, Layout]) -> GradientTensors:
    gradients = new_gradients()
    gradients.d_o = layouts["d_out"].tensor()
    for name in ("d_lse", *OUTPUTS):
        if name in layouts:
            setattr(gradients, name, layouts[name].tensor())
    return gradients


def compute(backend: Any, call: BackwardCall) -> Gradients:
    """Computes the gradients, after O and LSE if these are not given."""
    call = _with_forward(backend, call)
    plan = _plan(backend, call)
    arrays = call.arrays
    q, pointer = arrays["q"], backend.pointer
    outputs = {}
    for name, layout in plan.outputs.items():
        if name in arrays:
            backend.check_writable(name, arrays[name])
        outputs[name] = arrays[name] if name in arrays else backend.empty(layout, q)

    def pointers(names: Sequence[str], of: dict[str, Any]) -> list[int]:
        return [pointer(of[name]) if name in of else 0 for name in names]

    forward: Array[c_uint64] = _ForwardArguments(
        sizeof(_ForwardArguments),
        *pointers(("q", "k", "v", "out", "lse", *OPTIONAL_TENSORS[:-2]), arrays),
        *((0, 0) if call.dropout is None else call.dropout),
        *pointers(OPTIONAL_TENSORS[-1:], arrays),
    )
    arguments: Array[c_uint64] = _Arguments(
        sizeof(_Arguments),
        addressof(forward),
        *pointers(("d_out",), arrays),
        *pointers(OUTPUTS[:3], outputs),
        *pointers(("d_lse",), arrays),
        *pointers(OPTIONAL_OUTPUTS, outputs),
    )
    nbytes = plan.workspace_bytes
    owner, workspace = backend.workspace(nbytes, q) if nbytes else (None, None)
    stream = 0 if plan.device[0] == CPU else backend.stream(q)
    status = library.flashcore_plan_run_backward(plan.handle, arguments, workspace, nbytes, stream)
    if status != 0:
        raise error(status, BACKWARD_WORDS)
    del owner
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
        return_amax=False,
        kernel=None,
        early_start=False,
    )
    out, lse = backend.compute(
        arrays["q"], arrays["k"], arrays["v"], call.extras(), tuple(options), call.dropout, None
    )
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
        request = Request(
            q=layouts["q"],
            k=layouts["k"],
            v=layouts["v"],
            extras={name: layouts[name] for name in OPTIONAL_TENSORS if name in layouts},
            options=call.options,
            out_dtype=None,
            out=layouts["out"],
            out_lse=layouts["lse"],
        )
        plan = cache.put(key, BackwardPlan(request, layouts, call.asked, grad_dtype))
    return plan
