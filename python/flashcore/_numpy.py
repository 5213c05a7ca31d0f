"""NumPy arrays, including the extension types of ml_dtypes."""

import functools
from collections.abc import Hashable
from typing import Any

import numpy as np

from ._backend import Backend
from ._errors import InvalidArgumentError, UnsupportedError
from ._layout import NAMES, Layout, check_rank, dtype_code, element_strides, order_of
from ._library import CPU
from ._plan import host_workspace


def numpy_dtype(code: int) -> np.dtype:
    """Returns the dtype of a code; dtypes that NumPy lacks come from ml_dtypes."""
    name = NAMES[code]
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(
            f"out_dtype: is {name}, which NumPy has from the package ml_dtypes, wanted that "
            "installed or another out_dtype"
        ) from None
    return np.dtype(getattr(ml_dtypes, name))


def dense(module: Any, layout: Layout, dtype: Any) -> Any:
    """An uninitialised NumPy or CuPy array with these strides, which are dense in some order."""
    order = order_of(layout)
    array = module.empty([layout.shape[d] for d in order], dtype)
    return array.transpose(sorted(range(len(order)), key=order.__getitem__))


class NumpyBackend(Backend):
    wanted = "a numpy.ndarray"

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.strides

    def layout(self, argument: str, array: Any) -> Layout:
        check_rank(argument, array.shape)
        if not array.dtype.isnative:
            raise InvalidArgumentError(
                f"{argument}: dtype is {array.dtype.str}, wanted this machine's byte order"
            )
        return Layout(
            dtype_code(argument, array.dtype.name),
            array.shape,
            element_strides(argument, array.shape, array.strides, array.itemsize),
            (CPU, 0),
        )

    def pointer(self, array: Any) -> int:
        return array.__array_interface__["data"][0]

    def dtype(self, argument: str, dtype: Any) -> int:
        try:
            return dtype_code(argument, np.dtype(dtype).name)
        except TypeError:
            return super().dtype(argument, dtype)

    def empty(self, layout: Layout, like: Any) -> Any:
        return dense(np, layout, numpy_dtype(layout.dtype))

    empty_like: Any = staticmethod(functools.partial(np.empty_like, subok=False))

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        return host_workspace(nbytes)

    def check_writable(self, argument: str, array: Any) -> None:
        if not array.flags.writeable:
            raise InvalidArgumentError(f"{argument}: is read-only, wanted memory to write into")


backend = NumpyBackend()
