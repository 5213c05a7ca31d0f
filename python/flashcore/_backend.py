"""Backends: one per framework, with the operations on its arrays and the call that all share."""

import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ._backward import BackwardCall, Gradients
from ._backward import compute as backward
from ._errors import InvalidArgumentError
from ._layout import Layout, wrong_type
from ._library import CPU, error, library
from ._options import Options, seed, window_of
from ._plan import (
    ALL_ARGUMENTS_SIZE,
    ARGUMENTS_SIZE,
    FOUR_POINTERS_SIZE,
    NO_CACHE,
    NO_EXTRAS,
    Plan,
    Request,
    cache,
    code_of_name,
    names_of,
    pack_all_arguments,
    pack_arguments,
    pack_four_pointers,
)

run_plan = library.flashcore_plan_run

Extras = Sequence[Any] | None  # the optional arrays, in the order of OPTIONAL_TENSORS
Values = tuple[Any, ...]  # values of Options, in order
Pair = tuple[Any, Any] | None  # the dropout's seed and offset; or O and LSE to write to
# O and LSE, and, within the package, the largest values; in the order of OUTPUT_NAMES.
Outputs = tuple[Any, ...] | None
OUTPUT_NAMES = ("out", "out_lse", "amax_o", "amax_s")


class Backend:
    """One framework. Subclasses handle its arrays; `attention` is the same for all."""

    wanted = "an array"  # the name of its arrays in messages

    def owns(self, array: Any) -> bool:
        """Returns whether this is one of the framework's arrays."""
        raise NotImplementedError

    def key(self, array: Any) -> Hashable:
        """Returns what a plan depends on, as cheaply as possible and without checks."""
        raise NotImplementedError

    def layout(self, argument: str, array: Any) -> Layout:
        """Returns the array's layout for the library, after checks."""
        raise NotImplementedError

    def pointer(self, array: Any) -> int:
        raise NotImplementedError

    def dtype(self, argument: str, dtype: Any) -> int:
        """Returns the code of a dtype given in the framework's notation."""
        return code_of_name(argument, getattr(dtype, "name", dtype))

    def empty(self, layout: Layout, like: Any) -> Any:
        """Returns a new array of this layout on the device of `like`; strides are dense."""
        raise NotImplementedError

    def empty_out(self, plan: Plan, like: Any) -> Any:
        """Allocates O."""
        return self.empty(plan.out, like)

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        """Allocates memory: returns its owner, and an address that is a multiple of 256."""
        raise NotImplementedError

    def stream(self, like: Any) -> int:
        """The framework's current stream on a GPU; the default stream if the framework has none."""
        return 0

    def check_writable(self, argument: str, array: Any) -> None:
        """Raises if the array is not writable."""

    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        extras: Extras,
        options: Values,
        dropout: Pair,
        outputs: Outputs,
    ) -> Any:
        return self.compute(q, k, v, extras, options, dropout, outputs)

    def compute(
        self,
        q: Any,
        k: Any,
        v: Any,
        extras: Extras,
        options: Values,
        dropout: Pair,
        outputs: Outputs,
    ) -> Any:
        plan = self.plan(q, k, v, extras, options, outputs)
        return self.run(plan, q, k, v, extras, dropout, outputs)

    def plan(
        self, q: Any, k: Any, v: Any, extras: Extras, options: Values, outputs: Outputs
    ) -> Plan:
        """Returns the plan of a call, from the cache or new."""
        get = registered.get
        if get(type(k)) is not self or get(type(v)) is not self or extras or outputs:
            self._check_types(q, k, v, extras, outputs)
        key_of = self.key
        try:
            key: Hashable = (key_of(q), key_of(k), key_of(v), options)
            if extras is not None:
                key = (key, *[None if x is None else key_of(x) for x in extras])
            if outputs is not None:
                key = (key, "out", *[None if x is None else key_of(x) for x in outputs])
            plan = cache.get(key)
        except (TypeError, RuntimeError):  # an option or an array that cannot be hashed
            self.request(q, k, v, extras, options, outputs)  # raises if it is invalid
            return self.plan(q, k, v, extras, hashable(options), outputs)
        if plan is None:
            plan = cache.put(key, Plan(self.request(q, k, v, extras, options, outputs)))
        return plan

    def run(
        self, plan: Plan, q: Any, k: Any, v: Any, extras: Extras, dropout: Pair, outputs: Outputs
    ) -> Any:
        pointer = self.pointer
        largest: tuple[Any, ...] = ()
        if outputs is None:
            out, lse = self.empty_out(plan, q), None
        else:
            out, lse, *rest = outputs
            largest = tuple(rest)
            for name, array in zip(OUTPUT_NAMES, outputs, strict=False):
                if array is not None:
                    self.check_writable(name, array)
            if out is None:
                out = self.empty_out(plan, q)
        if extras is None and dropout is None and plan.lse is None and plan.amax is None:
            arguments = pack_four_pointers(
                FOUR_POINTERS_SIZE, pointer(q), pointer(k), pointer(v), pointer(out)
            )
        else:
            if plan.lse is not None and lse is None:
                lse = self.empty(plan.lse, q)
            if extras is None:
                optional: Sequence[int] = NO_EXTRAS
            else:
                optional = [0 if x is None else pointer(x) for x in extras]
            if plan.amax is not None and not largest:
                largest = (self.empty(plan.amax, q), self.empty(plan.amax, q))
            first = (
                pointer(q),
                pointer(k),
                pointer(v),
                pointer(out),
                0 if plan.lse is None else pointer(lse),
                *optional[:-2],
                *((0, 0) if dropout is None else seeds(dropout)),
                optional[-1],
            )
            if plan.amax is None and not optional[-2]:
                arguments = pack_arguments(ARGUMENTS_SIZE, *first)
            else:
                places = map(pointer, largest) if plan.amax is not None else (0, 0)
                arguments = pack_all_arguments(
                    ALL_ARGUMENTS_SIZE, *first, *NO_CACHE, optional[-2], *places
                )
        nbytes = plan.workspace_bytes
        owner, workspace = self.workspace(nbytes, q) if nbytes else (None, None)
        stream = 0 if plan.device[0] == CPU else self.stream(q)
        status = run_plan(plan.handle, arguments, workspace, nbytes, stream)
        if status != 0:
            raise error(status)
        del owner
        if plan.amax is not None:
            return (out, *largest) if plan.lse is None else (out, lse, *largest)
        return out if plan.lse is None else (out, lse)

    def request(
        self, q: Any, k: Any, v: Any, extras: Extras, options: Values, outputs: Outputs
    ) -> Request:
        """Describes the call for the library."""
        self._check_types(q, k, v, extras, outputs)
        layout = self.layout
        named = Options._make(options)
        out, lse = (None, None) if outputs is None else outputs[:2]
        return Request(
            q=layout("q", q),
            k=layout("k", k),
            v=layout("v", v),
            extras={name: layout(name, x) for name, x in names_of(extras)} if extras else {},
            options=named,
            out_dtype=None if named.out_dtype is None else self.dtype("out_dtype", named.out_dtype),
            out=None if out is None else layout("out", out),
            out_lse=None if lse is None else layout("out_lse", lse),
        )

    def backward(self, call: BackwardCall) -> Gradients:
        self.check_arrays(call.arrays.items())
        return backward(self, call)

    def _check_types(self, q: Any, k: Any, v: Any, extras: Extras, outputs: Outputs) -> None:
        for name, array in (("q", q), ("k", k), ("v", v)):
            if find(name, array) is not self:
                raise wrong_type(name, array, f"{self.wanted}, as q is")
        optional = names_of(extras) if extras else []
        optional += zip(OUTPUT_NAMES, outputs, strict=False) if outputs else []
        self.check_arrays((name, array) for name, array in optional if array is not None)

    def check_arrays(self, named: Iterable[tuple[str, Any]]) -> None:
        for name, array in named:
            if not is_array(array) or find(name, array) is not self:
                raise wrong_type(name, array, f"{self.wanted}, as q is")


def is_array(value: Any) -> bool:
    return type(value) in registered or any(c.owns(value) for c in _candidates())


def hashable(options: Values) -> Values:
    """Returns the options in hashable form; raises an error that says why if there is none."""
    named = Options._make(options)
    named = named._replace(window=window_of(named.window))
    for name, value in zip(Options._fields, named, strict=True):
        try:
            hash(value)
        except TypeError:
            raise wrong_type(name, value, "a plain value") from None
    return tuple(named)


def dropout_of(seed: Any, offset: Any, state: Any) -> Pair:
    """Returns seed and offset, or None if they are in memory."""
    if state is None:
        return seed, offset
    for name, value, wanted in (("dropout_seed", seed, None), ("dropout_offset", offset, 0)):
        if value != wanted:
            raise InvalidArgumentError(
                f"{name}: is {value!r}, wanted {wanted}: dropout_state is given and has it"
            )
    return None


def seeds(dropout: tuple[Any, Any]) -> tuple[int, int]:
    if dropout[0] is None:
        raise InvalidArgumentError("dropout_seed: is None, wanted 0 to 2^64 - 1 with dropout")
    return seed("dropout_seed", dropout[0]), seed("dropout_offset", dropout[1])


# The backend of each array type seen so far.
registered: dict[type, Backend] = {}


def find(argument: str, array: Any) -> Backend:
    """Returns the backend of an array; raises ArgumentTypeError if there is none."""
    backend = registered.get(type(array))
    if backend is None:
        for backend in _candidates():
            if backend.owns(array):
                registered[type(array)] = backend
                return backend
        raise wrong_type(
            argument,
            array,
            "a numpy.ndarray, torch.Tensor, jax.Array, cupy.ndarray or an array with __dlpack__",
        )
    return backend


def _candidates() -> list[Backend]:
    """Returns the backends of the imported frameworks; arrays of others cannot exist."""
    found: list[Backend] = []
    if "numpy" in sys.modules:
        from ._numpy import backend as numpy_backend

        found.append(numpy_backend)
    if "torch" in sys.modules:
        from ._torch_operator import backend as torch_backend

        found.append(torch_backend)
    if "jax" in sys.modules:
        from ._jax import backend as jax_backend

        found.append(jax_backend)
    if "cupy" in sys.modules:
        from ._cupy import backend as cupy_backend

        found.append(cupy_backend)
    from ._dlpack import backend as dlpack_backend

    found.append(dlpack_backend)
    return found
