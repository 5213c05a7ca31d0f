"""Calls that the library runs without a plan: append, merge, quantize, transpose_v."""

from collections.abc import Callable, Sequence
from typing import Any

from ._backend import find, registered
from ._layout import Layout, dense_strides
from ._library import CPU, PlanOptions, check, fill
from ._options import options_on
from ._plan import check_devices


class DirectCall:
    """The arrays of a call, by name, and their layouts; the first one says where it runs."""

    def __init__(self, arrays: dict[str, Any], written: Sequence[str] = ()):
        name, self.like = next(iter(arrays.items()))
        self.backend = registered.get(type(self.like)) or find(name, self.like)
        self.arrays = {name: array for name, array in arrays.items() if array is not None}
        self.backend.check_arrays(self.arrays.items())
        for one in written:
            if one in self.arrays:
                self.backend.check_writable(one, self.arrays[one])
        self.layouts = {n: self.backend.layout(n, array) for n, array in self.arrays.items()}
        self.first = self.layouts[name]
        check_devices(self.first, self.layouts)

    def add(
        self, name: str, dtype: int, shape: tuple[int, ...], stride: tuple[int, ...] | None = None
    ) -> Any:
        """Adds a new array for a result, dense by default."""
        layout = Layout(dtype, shape, stride or dense_strides(shape), self.first.device)
        array = self.backend.empty(layout, self.like)
        self.backend.check_writable(name, array)
        self.layouts[name], self.arrays[name] = layout, array
        return array

    def fill(self, problem: Any, arguments: Any) -> tuple[Any, Any]:
        """Fills in the tensors of a problem, and their addresses."""
        tensors = fill(problem, Layout.tensor, self.layouts)
        return tensors, fill(arguments, self.backend.pointer, self.arrays)

    def options(self, threads: Any) -> PlanOptions:
        return options_on(self.first.device, threads)

    def run(self, function: Callable[..., int], *arguments: Any, threads: Any) -> None:
        stream = None if self.first.device[0] == CPU else self.backend.stream(self.like)
        check(function(*arguments, self.options(threads), stream))
