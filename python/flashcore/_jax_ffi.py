"""JAX arrays under jit, vmap and grad: a call of XLA's foreign function interface.

The handler is Python; XLA calls it when the compiled program runs, with its stream. The options are
passed as JSON, so a compiled program that was stored keeps its meaning.
"""

import functools
import json
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import _xla as xla
from ._backend import Backend, registered, seeds
from ._backward import OPTIONAL_OUTPUTS, BackwardCall, refuse_fp8
from ._backward import compute as compute_backward
from ._call import Call
from ._errors import UnsupportedError
from ._jax_sharding import in_shard_map, partitioned
from ._layout import CODES, CPU_DEVICE, NAMES, Layout, check_rank, dense_strides, dtype_code
from ._library import CPU, CUDA
from ._numpy import numpy_dtype
from ._operands import LARGEST, LARGEST_OF, NO_LARGEST, Options
from ._options import window_of
from ._plan import (
    WORKSPACE_ALIGNMENT,
    Request,
    aligned,
    describe,
    host_workspace,
    verdicts,
)


class _Place(NamedTuple):
    """The context of a call: the device, XLA's stream, and XLA's interface."""

    device: tuple[int, int]
    stream: int
    frame: Any


class _Array(NamedTuple):
    """A buffer of XLA."""

    layout: Layout
    pointer: int
    place: _Place


class _FfiBackend(Backend):
    wanted = "a buffer of XLA's"

    def owns(self, array: Any) -> bool:
        return isinstance(array, _Array)

    def key(self, array: Any) -> Hashable:
        return _Array, array.layout

    def layout(self, argument: str, array: Any) -> Layout:
        return array.layout

    def pointer(self, array: Any) -> int:
        return array.pointer

    def check_writable(self, argument: str, array: Any) -> None:
        """XLA's results are always writable."""

    def stream(self, like: Any) -> int:
        return like.place.stream

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        place = like.place
        if place.device[0] == CPU:
            return host_workspace(nbytes)
        # XLA frees it after the call, and guarantees only its own alignment.
        size = nbytes + WORKSPACE_ALIGNMENT
        memory = xla.Allocate(context=place.frame.context, size=size, alignment=xla.ALIGNMENT)
        xla.ask(place.frame.api, "memory_allocate", memory, "workspace")
        return None, aligned(memory.data)


_backend = _FfiBackend()
registered[_Array] = _backend


def _array(buffer: Any, place: _Place) -> _Array:
    shape = tuple(buffer.dims[: buffer.rank])
    dtype = CODES[xla.DTYPES[buffer.dtype]]
    return _Array(Layout(dtype, shape, dense_strides(shape), place.device), buffer.data or 0, place)


@functools.lru_cache(maxsize=1024)
def _asked(text: str) -> tuple[list[str], list[str], Options, Any]:
    spec = json.loads(text)
    spec["options"]["window"] = tuple(spec["options"]["window"])
    return spec["inputs"], spec["outputs"], Options(**spec["options"]), spec["dropout"]


class _Given(NamedTuple):
    """A call as XLA makes it: its buffers by name, outputs included."""

    arrays: dict[str, _Array]
    options: Options
    dropout: Any


def _given(kind: int, frame: Any) -> _Given:
    device, stream = CPU_DEVICE, 0
    if kind == CUDA:
        pointer = xla.StreamGet(context=frame.context)
        xla.ask(frame.api, "stream_get", pointer, "stream")
        ordinal = xla.OrdinalGet(context=frame.context)
        xla.ask(frame.api, "device_ordinal_get", ordinal, "device")
        device, stream = (CUDA, ordinal.value), pointer.value or 0
    place = _Place(device, stream, frame)
    inputs, outputs, options, dropout = _asked(xla.asked(frame))
    arrays: dict[str, _Array] = {}
    for names, buffers in ((inputs, frame.arguments), (outputs, frame.results)):
        arrays |= {name: _array(buffers.items[i].contents, place) for i, name in enumerate(names)}
    return _Given(arrays, options, dropout)


def _execute(kind: int, frame: Any) -> None:
    arrays, options, dropout = _given(kind, frame)
    outputs = tuple(arrays.get(name) for name in ("out", "lse", *LARGEST))
    _backend.compute(Call.of(arrays, tuple(options), dropout, outputs))


def _execute_backward(kind: int, frame: Any) -> None:
    arrays, options, dropout = _given(kind, frame)
    asked = tuple(name for name in OPTIONAL_OUTPUTS if name in arrays)
    options = options._replace(out_dtype=None, return_lse=True, early_start=False, **NO_LARGEST)
    numbers = None if dropout is None else seeds(dropout)
    compute_backward(_backend, BackwardCall(arrays, asked, None, options, numbers))


_TARGETS = {"flashcore_attention": _execute, "flashcore_attention_backward": _execute_backward}
_handlers = {
    (target, platform): xla.handler(functools.partial(execute, kind))
    for target, execute in _TARGETS.items()
    for platform, kind in (("cpu", CPU), ("CUDA", CUDA))
}


@functools.cache
def _register() -> None:
    if not hasattr(jax, "ffi"):
        raise UnsupportedError("q, k, v: are traced by JAX, wanted a JAX with jax.ffi for that")
    for (target, platform), handler in _handlers.items():
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform=platform)


def _plain(value: Any) -> Any:
    """Converts NumPy numbers to JSON numbers."""
    return value.item() if hasattr(value, "item") else value


def _layout(argument: str, array: Any) -> Layout:
    check_rank(argument, array.shape)
    shape = tuple(array.shape)
    return Layout(dtype_code(argument, array.dtype.name), shape, dense_strides(shape), CPU_DEVICE)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _ffi_call(target: str, results: Any, asked: str, arrays: tuple[Any, ...]) -> Any:
    dtypes = [result.dtype for result in results]

    def compute(shapes: Sequence[Any], *arrays: Any) -> Any:
        outputs = tuple(map(jax.ShapeDtypeStruct, shapes, dtypes))
        return jax.ffi.ffi_call(target, outputs, vmap_method="sequential")(*arrays, asked=asked)

    spec = json.loads(asked)
    # Dropout's random numbers depend on the global index of a sequence and a head.
    if jax.device_count() == 1 or in_shard_map() or spec["options"]["dropout_p"] != 0:
        return compute([result.shape for result in results], *arrays)
    operands = dict(zip(spec["inputs"], arrays, strict=True))
    return partitioned(operands, dict(zip(spec["outputs"], results, strict=True)), compute)


@_ffi_call.defjvp
def _no_derivative(*_: Any) -> Any:
    raise UnsupportedError(
        "attention: its gradients have no derivative, wanted one jax.grad or jax.vjp, not a second"
    )


class _Traced(NamedTuple):
    """The static part of a traced call: names of its arrays, and the rest as JSON."""

    names: tuple[str, ...]
    results: tuple[str, ...]  # the returned ones of "out", "lse", and LARGEST
    largest: tuple[int, ...]  # the shape of each of LARGEST
    out_dtype: str
    options: str
    dropout: str

    def run(self, target: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        options = json.loads(self.options) | {
            "return_lse": "lse" in outputs,
            **{name: of[0] in outputs for name, of in LARGEST_OF.items()},
        }
        asked = {
            "inputs": list(inputs),
            "outputs": list(outputs),
            "options": options,
            "dropout": json.loads(self.dropout),
        }
        found = _ffi_call(
            target, tuple(outputs.values()), json.dumps(asked), tuple(inputs.values())
        )
        return dict(zip(outputs, found, strict=True))

    def forward(self, arrays: Sequence[Any], needs_lse: bool) -> dict[str, Any]:
        given = dict(zip(self.names, arrays, strict=True))
        q, v = given["q"], given["v"]
        head_dim_v = v.shape[-2 if json.loads(self.options)["v_transposed"] else -1]
        shape, dtype = (*q.shape[:-1], head_dim_v), numpy_dtype(CODES[self.out_dtype])
        outputs = {"out": jax.ShapeDtypeStruct(shape, dtype)}
        if needs_lse or "lse" in self.results:
            outputs["lse"] = jax.ShapeDtypeStruct(q.shape[:-1], jnp.float32)
        largest = jax.ShapeDtypeStruct(self.largest, jnp.float32)
        outputs |= {name: largest for name in LARGEST if name in self.results}
        return self.run("flashcore_attention", given, outputs)

    def backward(self, given: dict[str, Any], asked: Sequence[str]) -> dict[str, Any]:
        """Returns the gradients, by the names of their tensors."""
        belong_to = {name: name.removeprefix("d_") for name in asked}
        belong_to = {"dq": "q", "dk": "k", "dv": "v"} | belong_to
        outputs = {
            name: jax.ShapeDtypeStruct(given[of].shape, given[of].dtype)
            for name, of in belong_to.items()
        }
        found = self.run("flashcore_attention_backward", given, outputs)
        return {of: found[name] for name, of in belong_to.items()}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiated(call: _Traced, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(call.forward(arrays, False).values())


def _forward(call: _Traced, primals: tuple[Any, ...]) -> tuple[Any, Any]:
    arrays = tuple(primal.value for primal in primals)
    found = call.forward(arrays, True)
    # The set of needed gradients is static: only the keys matter.
    asked = {
        f"d_{name}": ()
        for name, primal in zip(call.names, primals, strict=True)
        if primal.perturbed and f"d_{name}" in OPTIONAL_OUTPUTS
    }
    results = tuple(found[name] for name in call.results)
    saved = {name: found[name] for name in ("out", "lse")}
    return results, (arrays, saved, asked)


def _backward(call: _Traced, saved: Any, cotangents: tuple[Any, ...]) -> tuple[Any]:
    arrays, found, asked = saved
    given = dict(zip(call.names, arrays, strict=True)) | found
    refuse_fp8({name: given[name].dtype.name for name in ("q", "k", "out")})
    for result, cotangent in zip(call.results, cotangents, strict=True):
        name = f"d_{result}"
        is_zero = isinstance(cotangent, jax.custom_derivatives.SymbolicZero)
        if is_zero and name == "d_out":
            given[name] = jnp.zeros(cotangent.shape, cotangent.dtype)
        elif not is_zero and result in LARGEST:
            raise UnsupportedError(
                f"{result}: has no gradient, wanted jax.lax.stop_gradient around it"
            )
        elif not is_zero:
            given[name] = cotangent
    gradients = call.backward(given, tuple(asked))
    return (tuple(gradients.get(name) for name in call.names),)


_differentiated.defvjp(_forward, _backward, symbolic_zeros=True)


def gradients(given: dict[str, Any], options: Options, asked: Sequence[str]) -> dict[str, Any]:
    """The traced gradients of a call, by the names of their tensors, with its O and LSE."""
    _register()
    return _Traced((), (), (), "", json.dumps(options._asdict()), "null").backward(given, asked)


def attention(given: Call, dtype_of: Any) -> Any:
    """The traced call. Checks everything about the problem that needs no device."""
    _register()
    named = Options(*given.options)
    named = named._replace(window=window_of(named.window))
    out_dtype = named.out_dtype
    if out_dtype is not None:
        out_dtype = dtype_of("out_dtype", out_dtype)
        named = named._replace(out_dtype=jnp.dtype(numpy_dtype(out_dtype)).name)
    arrays = given.inputs()
    layouts = {name: _layout(name, array) for name, array in arrays.items()}
    request = Request(layouts, named._replace(kernel=None), out_dtype)
    verdicts(request)
    _, out, lse, largest = describe(request)
    call = _Traced(
        names=tuple(arrays),
        results=(
            "out",
            *(() if lse is None else ("lse",)),
            *largest,
        ),
        largest=next((layout.shape for layout in largest.values()), ()),
        out_dtype=NAMES[out.dtype],
        options=json.dumps({name: _plain(value) for name, value in named._asdict().items()}),
        dropout=json.dumps(given.dropout and [_plain(x) for x in given.dropout]),
    )
    found = _differentiated(call, tuple(arrays.values()))
    return found if len(call.results) > 1 else found[0]
