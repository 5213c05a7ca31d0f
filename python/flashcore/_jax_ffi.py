"""JAX arrays under jit and vmap: a call of XLA's foreign function interface.

The handler is Python, called by XLA when the compiled program runs, in XLA's stream. It reads XLA's
call frame with ctypes; the structs are those of xla/ffi/api/c_api.h, whose sizes stand in front.
What is asked goes along as JSON, so a compiled program that was stored means the same later.
"""

import ctypes
import functools
import json
from collections.abc import Hashable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._backend import Backend, registered
from ._errors import InternalError, UnsupportedError
from ._layout import CODES, Layout, check_rank, dense_strides, dtype_code
from ._library import CPU, CUDA, OPTIONAL_TENSORS
from ._numpy import numpy_dtype
from ._options import Options, flag, window_of
from ._plan import Request, code_of_name, describe, host_workspace, names_of, verdicts

TARGET = "flashcore_attention"

# XLA_FFI_DataType, to the dtype's name.
_XLA_DTYPES = {
    1: "bool",
    4: "int32",
    10: "float16",
    11: "float32",
    12: "float64",
    16: "bfloat16",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
}
_METADATA_EXTENSION = 1
_STRING_ATTRIBUTE = 4


class _Version(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("major", c_int32),
        ("minor", c_int32),
    ]


class _Api(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", _Version),
        ("internal", c_void_p),
        *(
            (name, c_void_p)
            for name in (
                "error_create",
                "error_get_message",
                "error_destroy",
                "handler_register",
                "stream_get",
                "type_register",
                "context_get",
                "state_set",
                "state_get",
                "memory_allocate",
                "memory_free",
                "pool_schedule",
                "pool_size",
                "future_create",
                "future_set_available",
                "future_set_error",
                "run_id_get",
                "device_ordinal_get",
            )
        ),
    ]


class _Extension(Structure):
    _fields_ = [("struct_size", c_size_t), ("type", c_int32), ("next", c_void_p)]


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _Span(Structure):
    _fields_ = [("text", c_void_p), ("length", c_size_t)]

    def decode(self) -> str:
        return ctypes.string_at(self.text, self.length).decode()


class _Buffer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Buffers(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int32)),
        ("items", POINTER(POINTER(_Buffer))),
    ]


class _Attributes(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", POINTER(c_int32)),
        ("names", POINTER(POINTER(_Span))),
        ("items", POINTER(c_void_p)),
    ]


class _Frame(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", POINTER(_MetadataExtension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


class _ErrorCreate(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("message", c_char_p),
        ("code", c_int32),
    ]


class _PointerGet(Structure):
    """XLA_FFI_Stream_Get_Args."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("context", c_void_p),
        ("value", c_void_p),
    ]


class _OrdinalGet(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("context", c_void_p),
        ("value", c_int32),
    ]


class _Allocate(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("context", c_void_p),
        ("size", c_size_t),
        ("alignment", c_size_t),
        ("data", c_void_p),
    ]


_call = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_XLA_CODES = {"InvalidArgumentError": 3, "UnsupportedError": 12, "OutOfMemoryError": 8}


def _ask(function: int, arguments: Structure, what: str) -> None:
    # Where the last member ends; the structs of XLA are counted without the padding after it.
    name, kind = arguments._fields_[-1][:2]
    arguments.struct_size = getattr(type(arguments), name).offset + ctypes.sizeof(kind)
    if _call(function)(ctypes.addressof(arguments)):
        raise InternalError(f"XLA: gives no {what} for this call")


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
        memory = _Allocate(context=place.frame.context, size=nbytes, alignment=256)
        _ask(place.frame.api.contents.memory_allocate, memory, "workspace")
        return None, memory.data  # XLA frees it when the call is done


_backend = _FfiBackend()
registered[_Array] = _backend


def _array(buffer: Any, place: _Place) -> _Array:
    shape = tuple(buffer.dims[: buffer.rank])
    dtype = CODES[_XLA_DTYPES[buffer.dtype]]
    return _Array(Layout(dtype, shape, dense_strides(shape), place.device), buffer.data or 0, place)


@functools.lru_cache(maxsize=1024)
def _asked(text: str) -> tuple[list[str], tuple[Any, ...], Any]:
    spec = json.loads(text)
    spec["options"]["window"] = tuple(spec["options"]["window"])
    return spec["arrays"], tuple(spec["options"].values()), spec["dropout"]


def _text(frame: Any) -> str:
    attributes = frame.attributes
    for i in range(attributes.size):
        if attributes.names[i].contents.decode() == "asked":
            return ctypes.cast(attributes.items[i], POINTER(_Span)).contents.decode()
    raise InternalError("XLA: has lost the attribute that says what is asked")


def _check_version(frame: Any) -> None:
    """The interface is of version 0: it may change. What is read here says its own size."""
    sizes = [
        frame.arguments.struct_size == ctypes.sizeof(_Buffers),
        frame.results.struct_size == ctypes.sizeof(_Buffers),
        frame.attributes.struct_size == ctypes.sizeof(_Attributes),
        frame.api.contents.struct_size >= ctypes.sizeof(_Api),
        frame.arguments.items[0].contents.struct_size == ctypes.sizeof(_Buffer),
    ]
    version = frame.api.contents.version
    if version.major != 0 or not all(sizes):
        raise UnsupportedError(
            f"XLA: its foreign function interface has version {version.major}.{version.minor}, "
            "wanted one like 0.3; call flashcore.attention outside of jit"
        )


def _execute(frame: Any, kind: int) -> None:
    _check_version(frame)
    api = frame.api.contents
    device, stream = (CPU, 0), 0
    if kind == CUDA:
        pointer = _PointerGet(context=frame.context)
        _ask(api.stream_get, pointer, "stream")
        ordinal = _OrdinalGet(context=frame.context)
        _ask(api.device_ordinal_get, ordinal, "device")
        device, stream = (CUDA, ordinal.value), pointer.value or 0
    place = _Place(device, stream, frame)
    names, options, dropout = _asked(_text(frame))
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


def _handler(kind: int) -> Any:
    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        extension = frame.extension
        if extension and extension.contents.base.type == _METADATA_EXTENSION:
            version = extension.contents.metadata.contents.version
            known = frame.api.contents.version if frame.api else _Version(major=0, minor=1)
            version.major, version.minor = known.major, known.minor
            extension.contents.metadata.contents.traits = 0
            return None
        try:
            _execute(frame, kind)
        except BaseException as error:  # nothing may pass through XLA
            create = _ErrorCreate(
                struct_size=_ErrorCreate.code.offset + 4,
                message=str(error).encode() or type(error).__name__.encode(),
                code=_XLA_CODES.get(type(error).__name__, 13),
            )
            return _call(frame.api.contents.error_create)(ctypes.addressof(create))
        return None

    return _HANDLER(handle)


# They must outlive every compiled program.
_handlers = {"cpu": _handler(CPU), "CUDA": _handler(CUDA)}


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


def attention(
    q: Any,
    k: Any,
    v: Any,
    extras: Sequence[Any] | None,
    options: tuple[Any, ...],
    dropout: tuple[Any, Any] | None,
) -> Any:
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
