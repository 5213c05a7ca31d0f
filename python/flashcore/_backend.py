"""Backends: one per framework, with the operations on its arrays and the call that all share."""

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from typing import Any

from ._backward import BackwardCall, Gradients
from ._backward import compute as backward
from ._call import OUTPUTS, Call, Fields, present
from ._errors import InvalidArgumentError
from ._layout import Layout, wrong_type
from ._library import CPU, error, library
from ._operands import LARGEST, OPTIONAL_TENSORS, Options
from ._options import seed, window_of
from ._plan import (
    ARGUMENTS_SIZE,
    FOUR_POINTERS_SIZE,
    NO_CACHE,
    NO_EXTRAS,
    AnyPlan,
    Plan,
    Request,
    cache,
    code_of_name,
    pack_arguments,
    pack_four_pointers,
)

run_plan = library.flashcore_plan_run


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

    def empty_like(self, array: Any) -> Any:
        """Returns a new array with the layout of this one, which is dense."""
        return self.empty(self.layout("out", array), array)

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        """Allocates memory: returns its owner, and an address that is a multiple of 256."""
        raise NotImplementedError

    def stream(self, like: Any) -> int:
        """The framework's current stream on a GPU; the default stream if the framework has none."""
        return 0

    def check_writable(self, argument: str, array: Any) -> None:
        """Raises if the array is not writable."""

    def compute(self, call: Fields) -> Any:
        return self.run(self.plan(call), call)

    attention = compute  # what a user calls; some backends have more to do there

    def plan(self, call: Fields) -> Plan:
        """Returns the plan of a call, from the cache or new."""
        q, k, v, extras, options, _, outputs = call
        get = registered.get
        if get(type(k)) is not self or get(type(v)) is not self or extras or outputs:
            self.check_types(call)
        key_of = self.key
        try:
            key: Hashable = (key_of(q), key_of(k), key_of(v), options)
            if extras is not None:
                key = (key, *[None if x is None else key_of(x) for x in extras])
            if outputs is not None:
                key = (key, "out", *[None if x is None else key_of(x) for x in outputs])
            plan = cache.get(key)
        except (TypeError, RuntimeError):  # an option or an array that cannot be hashed
            self.request(call)  # raises if it is invalid
            return self.plan(Call._make(call)._replace(options=hashable(options)))
        if plan is None:
            plan = cache.put(key, Plan(self.request(call)))
        return plan

    def run(self, plan: Plan, call: Fields) -> Any:
        q, k, v, extras, _, dropout, outputs = call
        pointer = self.pointer
        largest: dict[str, Any] = {}
        if outputs is None:
            out = lse = None
        else:
            out, lse, *values = outputs
            largest = present(LARGEST, values)
            for name, array in present(OUTPUTS, outputs).items():
                self.check_writable(name, array)
        if out is None:
            out = self.empty_like(q) if plan.like_q else self.empty(plan.out, q)
        if extras is None and dropout is None and plan.lse is None and not plan.largest:
            arguments = pack_four_pointers(
                FOUR_POINTERS_SIZE, pointer(q), pointer(k), pointer(v), pointer(out)
            )
        else:
            if plan.lse is not None and lse is None:
                lse = self.empty(plan.lse, q)
            for name, layout in plan.largest.items():
                if name not in largest:
                    largest[name] = self.empty(layout, q)
            if extras is None:
                optional: Sequence[int] = NO_EXTRAS
            else:
                optional = [0 if x is None else pointer(x) for x in extras]
            arguments = pack_arguments(
                ARGUMENTS_SIZE,
                pointer(q),
                pointer(k),
                pointer(v),
                pointer(out),
                0 if plan.lse is None else pointer(lse),
                *optional[:-2],
                *((0, 0) if dropout is None else seeds(dropout)),
                optional[-1],
                *NO_CACHE,
                optional[-2],
                *(pointer(largest[name]) if name in plan.largest else 0 for name in LARGEST),
            )
        nbytes = plan.workspace_bytes
        owner, workspace = self.workspace(nbytes, q) if nbytes else (None, None)
        stream = None if plan.device[0] == CPU else self.stream(q)
        status = run_plan(plan.handle, arguments, workspace, nbytes, stream)
        if status != 0:
            raise error(status)
        del owner
        if plan.largest:
            values = [largest[name] for name in plan.largest]
            return (out, *values) if plan.lse is None else (out, lse, *values)
        return out if plan.lse is None else (out, lse)

    def launch(self, plan: AnyPlan, like: Any, run: Callable[..., int], *arguments: Any) -> int:
        """Runs another plan than that of `run`; returns the library's status."""
        nbytes = plan.workspace_bytes
        owner, workspace = self.workspace(nbytes, like) if nbytes else (None, None)
        stream = None if plan.device[0] == CPU else self.stream(like)
        status = run(*arguments, workspace, nbytes, stream)
        del owner
        return status

    def request(self, call: Fields) -> Request:
        """Describes the call for the library."""
        self.check_types(call)
        of = Call._make(call)
        arrays = of.inputs() | of.given_outputs()
        layouts = {name: self.layout(name, x) for name, x in arrays.items()}
        options = Options._make(of.options)
        dtype = options.out_dtype
        code = None if dtype is None else self.dtype("out_dtype", dtype)
        return Request(layouts, options, code)

    def backward(self, call: BackwardCall) -> Gradients:
        self.check_arrays(call.arrays.items())
        return backward(self, call)

    def check_types(self, call: Fields) -> None:
        q, k, v, extras, _, _, outputs = call
        for name, array in (("q", q), ("k", k), ("v", v)):
            if find(name, array) is not self:
                raise wrong_type(name, array, f"{self.wanted}, as q is")
        self.check_arrays(present(OPTIONAL_TENSORS, extras).items())
        self.check_arrays(present(OUTPUTS, outputs).items())

    def check_arrays(self, named: Iterable[tuple[str, Any]]) -> None:
        for name, array in named:
            if not is_array(array) or find(name, array) is not self:
                raise wrong_type(name, array, f"{self.wanted}, as q is")


def is_array(value: Any) -> bool:
    return type(value) in registered or any(c.owns(value) for c in _candidates())


def hashable(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the options in hashable form; raises an error that says why if there is none."""
    named = Options._make(options)
    named = named._replace(window=window_of(named.window))
    for name, value in zip(Options._fields, named, strict=True):
        try:
            hash(value)
        except TypeError:
            raise wrong_type(name, value, "a plain value") from None
    return tuple(named)


def dropout_of(seed: Any, offset: Any, state: Any) -> tuple[Any, Any] | None:
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


# The module of each framework's backend.
_MODULES = {"numpy": "_numpy", "torch": "_torch_operator", "jax": "_jax", "cupy": "_cupy"}


def _candidates() -> list[Backend]:
    """Returns the backends of the imported frameworks; arrays of others cannot exist."""
    names = [own for framework, own in _MODULES.items() if framework in sys.modules]
    return [import_module(f".{name}", __package__).backend for name in (*names, "_dlpack")]
