"""Arrays of any other framework, through the DLPack protocol; CPU only.

The capsule's format is described at https://dmlc.github.io/dlpack: a DLTensor, or since DLPack 1.0
a versioned one. NumPy allocates the result, which goes to the framework's from_dlpack.
"""

import ctypes
import sys
from collections.abc import Hashable, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
    py_object,
)
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._backend import Backend, registered
from ._backward import BackwardCall, Gradients
from ._backward import compute as backward
from ._call import OUTPUTS, Call, Fields
from ._errors import InvalidArgumentError, UnsupportedError
from ._layout import Layout, check_rank, dense_strides, dtype_code
from ._library import CPU
from ._numpy import backend as numpy_backend
from ._operands import OPTIONAL_TENSORS
from ._plan import Request, host_workspace

_CPU_DEVICE = 1  # kDLCPU


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


# Maps (type code, bits) of DLDataType to the name of the dtype.
_DTYPES = {
    (0, 32): "int32",
    (0, 64): "int64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = c_void_p
_get_pointer.argtypes = [py_object, c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [py_object, c_char_p]


@dataclass(frozen=True, slots=True)
class Exported:
    """An array, its capsule, which keeps the memory alive, and the capsule's contents."""

    array: Any
    capsule: Any
    pointer: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    read_only: bool


def export(argument: str, array: Any) -> Exported:
    """The capsule is not consumed: its destructor frees the memory."""
    device = array.__dlpack_device__()
    if device[0] != _CPU_DEVICE:
        raise UnsupportedError(
            f"{argument}: is a {type(array).__module__} array on DLPack device {tuple(device)}, "
            "wanted the CPU; on a GPU use PyTorch, JAX or CuPy arrays"
        )
    try:
        capsule = array.__dlpack__(max_version=(1, 1))
    except TypeError:  # an exporter from before DLPack 1.0
        capsule = array.__dlpack__()
    read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        address = _get_pointer(capsule, b"dltensor_versioned")
        managed = _Versioned.from_address(address)
        if managed.major != 1:
            raise UnsupportedError(f"{argument}: speaks DLPack {managed.major}, wanted version 1")
        tensor, read_only = managed.tensor, bool(managed.flags & 1)
    else:
        tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise InvalidArgumentError(
            f"{argument}: DLPack dtype is (code {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes), wanted one of {', '.join(_DTYPES.values())}"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    stride = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else dense_strides(shape)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return Exported(array, capsule, pointer, dtype, shape, stride, read_only)


class DlpackBackend(Backend):
    """Each array is exported once per call, as Exported, and held until the call returns."""

    wanted = "an array with __dlpack__"

    def owns(self, array: Any) -> bool:
        if isinstance(array, np.ndarray):
            return False  # a subclass whose data have another meaning
        return hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")

    def key(self, array: Any) -> Hashable:
        if isinstance(array, np.ndarray):
            return numpy_backend.key(array)  # an array made on the way
        return type(array.array), array.dtype, array.shape, array.stride

    def layout(self, argument: str, array: Any) -> Layout:
        if isinstance(array, np.ndarray):
            return numpy_backend.layout(argument, array)
        check_rank(argument, array.shape)
        return Layout(dtype_code(argument, array.dtype), array.shape, array.stride, (CPU, 0))

    def pointer(self, array: Any) -> int:
        if isinstance(array, np.ndarray):
            return numpy_backend.pointer(array)
        return array.pointer

    def check_writable(self, argument: str, array: Exported) -> None:
        if array.read_only:
            raise InvalidArgumentError(f"{argument}: is read-only, wanted memory to write into")

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        return host_workspace(nbytes)

    def request(self, call: Fields) -> Request:
        return super().request(self._exported(call))

    def attention(self, call: Fields) -> Any:
        result = self.compute(self._exported(call))
        if isinstance(result, tuple):
            return tuple(_home(part, call[0]) for part in result)
        return _home(result, call[0])

    def backward(self, call: BackwardCall) -> Gradients:
        self.check_arrays(call.arrays.items())
        held = {name: export(name, array) for name, array in call.arrays.items()}
        found = backward(self, call._replace(arrays=held))
        return Gradients(*[x if x is None else _home(x, call.arrays["q"]) for x in found])

    def _exported(self, call: Fields) -> Call:
        """Returns the call with each array exported, once."""
        self.check_types(call)
        q, k, v, extras, options, dropout, outputs = call

        def one(argument: str, array: Any) -> Any:
            return array if array is None or type(array) is Exported else export(argument, array)

        def each(names: Sequence[str], arrays: Sequence[Any] | None) -> tuple[Any, ...] | None:
            return None if arrays is None else tuple(map(one, names, arrays))

        return Call(
            one("q", q),
            one("k", k),
            one("v", v),
            each(OPTIONAL_TENSORS, extras),
            options,
            dropout,
            each(OUTPUTS, outputs),
        )

    def empty(self, layout: Layout, like: Any) -> Any:
        return numpy_backend.empty(layout, like)


def _home(array: Any, like: Any) -> Any:
    """Returns a NumPy result as an array of the framework of `like`, on the same memory."""
    if isinstance(array, Exported):
        return array.array  # the caller's own output
    package = sys.modules[type(like).__module__.partition(".")[0]]
    from_dlpack = getattr(package, "from_dlpack", None)
    if from_dlpack is None:
        raise UnsupportedError(
            f"q: is a {type(like).__module__}.{type(like).__name__}, and {package.__name__} has no "
            "from_dlpack to give the result back with; pass NumPy views instead"
        )
    return from_dlpack(array)


backend = DlpackBackend()
registered[Exported] = backend
