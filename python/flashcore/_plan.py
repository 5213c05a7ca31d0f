"""Plans: a problem bound to a kernel, made once per set of layouts and options, then cached.

A run packs the pointers of flashcore_arguments as bytes, so that threads share nothing, and costs
one foreign call.
"""

import struct
import threading
from collections.abc import Callable, Hashable
from ctypes import byref, c_void_p, sizeof
from typing import Any, NamedTuple, TypeVar

from ._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ._layout import (
    CODES,
    F32,
    Layout,
    dense_strides,
    device_name,
    dtype_code,
    like,
    wanted_dtype,
)
from ._library import (
    VERDICT_VISITOR,
    Arguments,
    Problem,
    check,
    fill,
    in_python,
    library,
    with_defaults,
)
from ._operands import CACHE_TENSORS, OPTIONAL_TENSORS, Options
from ._options import fill_problem, flag, largest_of, plan_options

# flashcore_arguments, all of it 8-byte members: struct_size, q, k, v, o, lse, the optional tensors
# in the order of OPTIONAL_TENSORS without the last two, dropout's seed and offset, its state, the
# tensors of a cache, O's scale, and the largest values.
_ARGUMENTS = struct.Struct(f"@{sizeof(Arguments) // 8}Q")
ARGUMENTS_SIZE = _ARGUMENTS.size
pack_arguments = _ARGUMENTS.pack
NO_CACHE = (0,) * len(CACHE_TENSORS)
# The beginning up to o; members past struct_size are absent.
_FOUR_POINTERS = struct.Struct("@5Q")
FOUR_POINTERS_SIZE = _FOUR_POINTERS.size
pack_four_pointers = _FOUR_POINTERS.pack
NO_EXTRAS = (0,) * len(OPTIONAL_TENSORS)

WORKSPACE_ALIGNMENT = 256


class Request(NamedTuple):
    """The description of a call: its arrays' layouts, by the names of its arguments, and options.

    Of a backward pass it has the gradients, too.
    """

    layouts: dict[str, Layout]
    options: Options
    out_dtype: int | None = None

    @property
    def q(self) -> Layout:
        return self.layouts["q"]


# Called with every new plan: the problem in C, the request, and True for a backward pass.
observers: list[Callable[[Problem, Request, bool], None]] = []


def announce(problem: Problem, request: Request, backward: bool = False) -> None:
    for observer in list(observers):
        observer(problem, request, backward)


class AnyPlan:
    """A plan of the library, forward or backward."""

    __slots__ = ("device", "handle", "kernel", "reason", "workspace_bytes")

    def __init__(self, handle: c_void_p, device: tuple[int, int]):
        self.handle = handle
        self.kernel = library.flashcore_plan_kernel(handle).decode()
        self.reason = in_python(library.flashcore_plan_reason(handle))
        self.workspace_bytes = library.flashcore_plan_workspace_bytes(handle)
        self.device = device

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            library.flashcore_plan_destroy(self.handle)


class Plan(AnyPlan):
    """A forward plan, and the layouts of its outputs."""

    __slots__ = ("largest", "like_q", "lse", "out")

    def __init__(self, request: Request):
        # No LSE without return_lse; only the largest values that the options ask for.
        problem, self.out, self.lse, self.largest = describe(request)
        # True if a new O has exactly q's layout.
        self.like_q = self.out == request.q
        options = plan_options(request.options, request.q.device)
        handle = c_void_p()
        check(library.flashcore_plan_create(problem, options, byref(handle)))
        announce(problem, request)
        super().__init__(handle, request.q.device)


def check_devices(q: Layout, layouts: dict[str, Layout]) -> None:
    for name, layout in layouts.items():
        if layout.device != q.device:
            raise InvalidArgumentError(
                f"{name}: is on {device_name(layout.device)}, wanted {device_name(q.device)}, "
                "where q is"
            )


def describe(request: Request) -> tuple[Problem, Layout, Layout | None, dict[str, Layout]]:
    """Returns the problem in C, and the layouts of its outputs: O, LSE, and the largest values."""
    q, layouts, options = request.q, request.layouts, request.options
    check_devices(q, layouts)
    problem = with_defaults(Problem)
    fill_problem(problem, options)
    fill(problem, Layout.tensor, {n: x for n, x in layouts.items() if n not in ("lse", "out_lse")})

    out = layouts.get("out")
    if out is None:
        v = layouts["v"]
        head_dim_v = v.shape[-2:][0] if problem.v_transposed else v.shape[-1]
        shape = (*q.shape[:-1], head_dim_v)
        dtype = q.dtype if request.out_dtype is None else request.out_dtype
        out = Layout(dtype, shape, like(q, shape), q.device)
        problem.o = out.tensor()
    elif request.out_dtype not in (None, out.dtype):
        raise InvalidArgumentError("out_dtype: differs from the dtype of out, wanted one of them")

    lse = layouts.get("out_lse")
    if flag("return_lse", options.return_lse):
        if lse is None:
            shape = q.shape[:-1]
            lse = Layout(F32, shape, dense_strides(shape), q.device)
        if lse.shape:
            problem.lse = lse.tensor()
    elif lse is not None:
        raise InvalidArgumentError("out_lse: is present, wanted it only with return_lse=True")

    largest = {}
    names = largest_of(options)
    if names and len(q.shape) > 1:
        starts = layouts.get("cu_seqlens_q")
        batch = q.shape[0] if starts is None else max(starts.shape[0] - 1, 0)
        values = Layout(F32, (batch, q.shape[1]), dense_strides((batch, q.shape[1])), q.device)
        largest = dict.fromkeys(names, values)
        fill(problem, Layout.tensor, largest)
    return problem, out, lse, largest


def verdicts(request: Request) -> list[dict[str, Any]]:
    """Returns every kernel's verdict on a problem, best first."""
    problem, *_ = describe(request)
    options = plan_options(request.options, request.q.device)
    found: list[dict[str, Any]] = []

    def take(_user: Any, pointer: Any) -> None:
        verdict = pointer.contents
        texts = ("kernel", "refusal", "declines", "note")
        found.append(
            {name: in_python(getattr(verdict, name)) for name in texts}
            | {"automatic": bool(verdict.automatic)}
        )

    check(library.flashcore_visit_verdicts(problem, options, VERDICT_VISITOR(take), None))
    return found


def explained(request: Request) -> list[dict[str, Any]]:
    """Returns the verdicts, and the kernel that a call would run."""
    found = verdicts(request)
    try:
        chosen = Plan(request).kernel
    except UnsupportedError:
        chosen = ""
    return [verdict | {"chosen": verdict["kernel"] == chosen} for verdict in found]


_AnyPlan = TypeVar("_AnyPlan", bound=AnyPlan)


class Cache:
    """Caches plans by everything that they depend on. Drops the oldest half when it is full.

    Freeing a plan is safe at any time: work queued on a GPU does not read it.
    """

    def __init__(self, limit: int = 4096):
        self.limit = limit
        self.plans: dict[Hashable, Any] = {}
        self.get = self.plans.get
        self._lock = threading.Lock()

    def put(self, key: Hashable, plan: _AnyPlan) -> _AnyPlan:
        with self._lock:
            if len(self.plans) >= self.limit:
                for old in list(self.plans)[: self.limit // 2]:
                    del self.plans[old]
            self.plans[key] = plan
        return plan

    def clear(self) -> None:
        with self._lock:
            self.plans.clear()


cache = Cache()


def aligned(address: int) -> int:
    return -(-address // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def host_workspace(nbytes: int) -> tuple[Any, int]:
    """Allocates memory for a run on the CPU: returns its owner and its aligned address."""
    import numpy

    owner = numpy.empty(nbytes + WORKSPACE_ALIGNMENT, numpy.uint8)
    return owner, aligned(owner.__array_interface__["data"][0])


def code_of_name(argument: str, name: Any) -> int:
    if not isinstance(name, str) or name not in CODES:
        raise ArgumentTypeError(f"{argument}: is {name!r}, wanted {wanted_dtype(argument)}")
    return dtype_code(argument, name)
