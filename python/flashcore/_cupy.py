"""CuPy arrays."""

from collections.abc import Hashable
from typing import Any

import cupy

from ._backend import Backend
from ._layout import Layout, check_rank, dtype_code, element_strides
from ._library import CUDA
from ._numpy import dense, numpy_dtype
from ._plan import aligned


class CupyBackend(Backend):
    wanted = "a cupy.ndarray"

    def owns(self, array: Any) -> bool:
        return isinstance(array, cupy.ndarray)

    def key(self, array: Any) -> Hashable:
        return cupy, array.dtype, array.shape, array.strides, array.device.id

    def layout(self, argument: str, array: Any) -> Layout:
        check_rank(argument, array.shape)
        return Layout(
            dtype_code(argument, array.dtype.name),
            array.shape,
            element_strides(argument, array.shape, array.strides, array.itemsize),
            (CUDA, array.device.id),
        )

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def empty(self, layout: Layout, like: Any) -> Any:
        with like.device:
            return dense(cupy, layout, numpy_dtype(layout.dtype))

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        with like.device:
            owner = cupy.empty(nbytes + 256, cupy.uint8)
        return owner, aligned(owner.data.ptr)

    def stream(self, like: Any) -> int:
        with like.device:
            return cupy.cuda.get_current_stream().ptr


backend = CupyBackend()
