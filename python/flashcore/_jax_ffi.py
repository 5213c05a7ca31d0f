"""JAX arrays under jit and vmap: a call of XLA's foreign function interface.

The handler is Python, called by XLA when the compiled program runs, in XLA's stream. What is
asked goes along as JSON, so a compiled program that was stored means the same later.
"""

import functools
import json
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from . import _xla as xla
from ._backend import Backend, Extras, Pair, Values, registered
from ._errors import UnsupportedError
from ._layout import CODES, Layout, check_rank, dense_strides, dtype_code
from ._library import CPU, CUDA, OPTIONAL_TENSORS
from ._numpy import numpy_dtype
from ._options import Options, flag, window_of
from ._plan import Request, code_of_name, describe, host_workspace, names_of, verdicts

TARGET = "flashcore_attention"


class _Place(NamedTuple):
    """Where a call runs: the device, XLA's stream, and what can be asked of XLA."""

    device: tuple[int, int]
    stream: int
    frame: Any


class _Array(NamedTuple):
    """A buffer of XLA's."""

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
        """XLA's results are there to be written."""

    def stream(self, like: Any) -> int:
        return like.place.stream

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        place = like.place
        if place.device[0] == CPU:
            return host_workspace(nbytes)
        memory = xla.Allocate(context=place.frame.context, size=nbytes, alignment=256)
        xla.ask(place.frame.api.contents.memory_allocate, memory, "workspace")
        return None, memory.data  # XLA frees it when the call is done


_backend = _FfiBackend()
registered[_Array] = _backend


def _array(buffer: Any, place: _Place) -> _Array:
    shape = tuple(buffer.dims[: buffer.rank])
    dtype = CODES[xla.DTYPES[buffer.dtype]]
    return _Array(Layout(dtype, shape, dense_strides(shape), place.device), buffer.data or 0, place)


@functools.lru_cache(maxsize=1024)
def _asked(text: str) -> tuple[list[str], Values, Any]:
    spec = json.loads(text)
    spec["options"]["window"] = tuple(spec["options"]["window"])
    return spec["arrays"], tuple(spec["options"].values()), spec["dropout"]


def _execute(kind: int, frame: Any) -> None:
    api = frame.api.contents
    device, stream = (CPU, 0), 0
    if kind == CUDA:
        pointer = xla.PointerGet(context=frame.context)
        xla.ask(api.stream_get, pointer, "stream")
        ordinal = xla.OrdinalGet(context=frame.context)
        xla.ask(api.device_ordinal_get, ordinal, "device")
        device, stream = (CUDA, ordinal.value), pointer.value or 0
    place = _Place(device, stream, frame)
    names, options, dropout = _asked(xla.asked(frame))
    given = {name: _array(frame.arguments.items[i].contents, place) for i, name in enumerate(names)}
    results = [_array(frame.results.items[i].contents, place) for i in range(frame.results.size)]
    extras = [given.get(name) for name in OPTIONAL_TENSORS]
    _backend.compute(
        given["q"],
        given["k"],
        given["v"],
        extras if len(given) > 3 else None,
        options,
        dropout,
        (results[0], results[1] if len(results) > 1 else None),
    )


_handlers = {
    "cpu": xla.handler(functools.partial(_execute, CPU)),
    "CUDA": xla.handler(functools.partial(_execute, CUDA)),
}


@functools.cache
def _register() -> None:
    if not hasattr(jax, "ffi"):
        raise UnsupportedError("q, k, v: are traced by JAX, wanted a JAX with jax.ffi for that")
    for platform, handler in _handlers.items():
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform=platform)


def _plain(value: Any) -> Any:
    """Numbers of NumPy as JSON has them."""
    return value.item() if hasattr(value, "item") else value


def _layout(argument: str, array: Any) -> Layout:
    check_rank(argument, array.shape)
    shape = tuple(array.shape)
    return Layout(dtype_code(argument, array.dtype.name), shape, dense_strides(shape), (CPU, 0))


def attention(q: Any, k: Any, v: Any, extras: Extras, options: Values, dropout: Pair) -> Any:
    """The traced call. What can be known of the problem without its device is checked here."""
    _register()
    named = Options(*options)
    named = named._replace(window=window_of(named.window))
    out_dtype = named.out_dtype
    if out_dtype is not None:
        out_dtype = code_of_name("out_dtype", getattr(out_dtype, "name", out_dtype))
        named = named._replace(out_dtype=jnp.dtype(numpy_dtype(out_dtype)).name)
    optional = names_of(extras) if extras else []
    request = Request(
        q=_layout("q", q),
        k=_layout("k", k),
        v=_layout("v", v),
        extras={name: _layout(name, x) for name, x in optional},
        options=named._replace(kernel=None),
        out_dtype=out_dtype,
        out=None,
        out_lse=None,
    )
    verdicts(request)
    _, out, lse = describe(request)
    results = [jax.ShapeDtypeStruct(out.shape, numpy_dtype(out.dtype))]
    if flag("return_lse", named.return_lse) and lse is not None:
        results.append(jax.ShapeDtypeStruct(lse.shape, jnp.float32))
    asked = {
        "arrays": ["q", "k", "v", *(name for name, _ in optional)],
        "options": {name: _plain(value) for name, value in named._asdict().items()},
        "dropout": None if dropout is None else [_plain(x) for x in dropout],
    }
    call = jax.ffi.ffi_call(TARGET, results, vmap_method="sequential")
    found = call(q, k, v, *(x for _, x in optional), asked=json.dumps(asked))
    return tuple(found) if len(results) > 1 else found[0]
