"""The part of XLA's foreign function interface that a Python handler needs, with ctypes.

jax.ffi registers and calls a handler, but has no way to write one in Python that is stored with a
compiled program, and allocates through XLA: jax.experimental.buffer_callback does neither. The
structs are those of xla/ffi/api/c_api.h; each begins with its size.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

from ._errors import InternalError, UnsupportedError

# Maps XLA_FFI_DataType to the dtype's name.
DTYPES = {
    1: "bool",
    4: "int32",
    5: "int64",
    10: "float16",
    11: "float32",
    12: "float64",
    16: "bfloat16",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
}
_METADATA_EXTENSION = 1
ALIGNMENT = 16  # the largest alignment that an allocation may ask for
_FUNCTIONS = """
error_create error_get_message error_destroy handler_register stream_get
type_register context_get state_set state_get memory_allocate memory_free
pool_schedule pool_size future_create future_set_available future_set_error
run_id_get device_ordinal_get
"""


def _struct(name: str, *members: tuple[str, Any]) -> Any:
    return type(name, (Structure,), {"_fields_": members})


_SIZE = ("struct_size", c_size_t)
_HEAD = (_SIZE, ("extension", c_void_p))


def _asks(name: str, *members: tuple[str, Any]) -> Any:
    """The arguments of one of XLA's functions about a call; the last member is its answer."""
    return _struct(name, *_HEAD, ("context", c_void_p), *members)


_Version = _struct("_Version", *_HEAD, ("major", c_int32), ("minor", c_int32))
_Api = _struct(
    "_Api",
    *_HEAD,
    ("version", _Version),
    ("internal", c_void_p),
    *((name, c_void_p) for name in _FUNCTIONS.split()),
)
_Extension = _struct("_Extension", _SIZE, ("type", c_int32), ("next", c_void_p))
_Metadata = _struct("_Metadata", _SIZE, ("version", _Version), ("traits", c_uint32))
_MetadataExtension = _struct(
    "_MetadataExtension", ("base", _Extension), ("metadata", POINTER(_Metadata))
)
_Span = _struct("_Span", ("text", c_void_p), ("length", c_size_t))
_Buffer = _struct(
    "_Buffer",
    *_HEAD,
    ("dtype", c_int32),
    ("data", c_void_p),
    ("rank", c_int64),
    ("dims", POINTER(c_int64)),
)
_COUNT_AND_TYPES = (("size", c_int64), ("types", POINTER(c_int32)))
_Buffers = _struct("_Buffers", *_HEAD, *_COUNT_AND_TYPES, ("items", POINTER(POINTER(_Buffer))))
_Attributes = _struct(
    "_Attributes",
    *_HEAD,
    *_COUNT_AND_TYPES,
    ("names", POINTER(POINTER(_Span))),
    ("items", POINTER(c_void_p)),
)
_Frame = _struct(
    "_Frame",
    _SIZE,
    ("extension", POINTER(_MetadataExtension)),
    ("api", POINTER(_Api)),
    ("context", c_void_p),
    ("stage", c_int32),
    ("arguments", _Buffers),
    ("results", _Buffers),
    ("attributes", _Attributes),
)
_ErrorCreate = _struct("_ErrorCreate", *_HEAD, ("message", c_char_p), ("code", c_int32))
_ErrorMessage = _struct("_ErrorMessage", *_HEAD, ("error", c_void_p), ("message", c_char_p))
_ErrorDestroy = _struct("_ErrorDestroy", *_HEAD, ("error", c_void_p))
StreamGet = _asks("StreamGet", ("value", c_void_p))
OrdinalGet = _asks("OrdinalGet", ("value", c_int32))
Allocate = _asks("Allocate", ("size", c_size_t), ("alignment", c_size_t), ("data", c_void_p))

_call = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_ERRORS = {"InvalidArgumentError": 3, "UnsupportedError": 12, "OutOfMemoryError": 8}


def _call_of(api: Any, function: str, arguments: Structure) -> int | None:
    """Calls one of XLA's functions; returns its error, or None."""
    # The end of the last member: XLA's struct sizes do not include padding after it.
    name, kind = arguments._fields_[-1][:2]
    arguments.struct_size = getattr(type(arguments), name).offset + ctypes.sizeof(kind)
    found: int | None = _call(getattr(api.contents, function))(ctypes.addressof(arguments))
    return found


def ask(api: Any, function: str, arguments: Structure, what: str) -> None:
    failure = _call_of(api, function, arguments)
    if not failure:
        return
    said = _ErrorMessage(error=failure)
    _call_of(api, "error_get_message", said)
    reason = (said.message or b"").decode(errors="replace")
    _call_of(api, "error_destroy", _ErrorDestroy(error=failure))
    raise InternalError(f"XLA: gives no {what} for this call: {reason}")


def _text(span: Any) -> str:
    return ctypes.string_at(span.text, span.length).decode()


def asked(frame: Any) -> str:
    """Returns the call's only attribute."""
    attributes = frame.attributes
    for i in range(attributes.size):
        if _text(attributes.names[i].contents) == "asked":
            return _text(ctypes.cast(attributes.items[i], POINTER(_Span)).contents)
    raise InternalError("XLA: has lost the attribute that says what is asked")


def _check_version(frame: Any) -> None:
    """The interface has version 0, so it may change. The sizes of the structs read are checked."""
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


def handler(execute: Callable[[Any], None]) -> Any:
    """A handler for XLA; must outlive every compiled program. `execute` gets the call frame."""

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
            _check_version(frame)
            execute(frame)
        except BaseException as error:  # no exception may pass through XLA
            create = _ErrorCreate(
                struct_size=_ErrorCreate.code.offset + 4,
                message=str(error).encode() or type(error).__name__.encode(),
                code=_ERRORS.get(type(error).__name__, 13),
            )
            return _call(frame.api.contents.error_create)(ctypes.addressof(create))
        return None

    return _HANDLER(handle)
