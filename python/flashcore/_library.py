"""The shared library behind its C interface: loading it, its structs, its status codes.

The library lies beside this file; FLASHCORE_LIBRARY names another one, for working on the library
itself. The structs mirror flashcore.h; thanks to `struct_size` either side may be older.
"""

import ctypes
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, TypeVar

from ._errors import BY_STATUS, Error, InternalError
from ._operands import (
    APPEND_TENSORS,
    FIRST_TENSORS,
    GRADIENT_TENSORS,
    LAST_TENSORS,
    LATER_TENSORS,
    MERGE_TENSORS,
    QUANTIZE_TENSORS,
)

MAX_RANK = 4
CPU, CUDA = 0, 1


class Tensor(Structure):
    _fields_ = [
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK),
        ("stride", c_int64 * MAX_RANK),
    ]


_SIZE = ("struct_size", c_size_t)


def _all(kind: Any, names: str | tuple[str, ...]) -> list[tuple[str, Any]]:
    """Returns members of one type."""
    return [(name, kind) for name in (names.split() if isinstance(names, str) else names)]


class Problem(Structure):
    _fields_ = [
        _SIZE,
        *_all(Tensor, FIRST_TENSORS),
        ("has_softmax_scale", c_int32),
        *_all(c_float, "softmax_scale softcap"),
        *_all(c_int32, "causal alignment"),
        ("dropout_p", c_float),
        *_all(c_int64, "causal_offset window_left window_right"),
        *_all(c_int64, "kv_scale_block max_seqlen_q max_seqlen_kv"),
        *_all(Tensor, LAST_TENSORS),
        *_all(c_int32, "v_transposed reserved"),
        *_all(Tensor, LATER_TENSORS),
    ]


class Arguments(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_void_p, FIRST_TENSORS),
        *_all(c_uint64, "dropout_seed dropout_offset"),
        *_all(c_void_p, LAST_TENSORS + LATER_TENSORS),
    ]


class GradientTensors(Structure):
    _fields_ = [_SIZE, *_all(Tensor, GRADIENT_TENSORS)]


class BackwardArguments(Structure):
    _fields_ = [_SIZE, *_all(c_void_p, ("forward", *GRADIENT_TENSORS))]


class MergeProblem(Structure):
    _fields_ = [_SIZE, *_all(Tensor, MERGE_TENSORS)]


class MergeArguments(Structure):
    _fields_ = [_SIZE, *_all(c_void_p, MERGE_TENSORS)]


class AppendProblem(Structure):
    _fields_ = [
        _SIZE,
        *_all(Tensor, APPEND_TENSORS),
        *_all(c_int64, "kv_scale_block rotary_dim"),
        *_all(c_float, "rope_base rope_scale"),
        *_all(c_int32, "interleaved v_transposed"),
    ]


class AppendArguments(Structure):
    _fields_ = [_SIZE, *_all(c_void_p, APPEND_TENSORS)]


class QuantizeProblem(Structure):
    _fields_ = [
        _SIZE,
        *_all(Tensor, QUANTIZE_TENSORS),
        *_all(c_int64, "scale_block max_seqlen"),
    ]


class QuantizeArguments(Structure):
    _fields_ = [_SIZE, *_all(c_void_p, QUANTIZE_TENSORS)]


class ContextProblem(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_int32, "world rank layout algorithm"),
        ("documents", c_int64),
        *_all(c_void_p, "seqlens_q seqlens_kv"),
        *_all(c_int32, "causal alignment"),
        *_all(c_int64, "window_left window_right batch heads_q heads_kv"),
        *_all(c_int64, "head_dim_qk head_dim_v element_bytes"),
        *_all(c_double, "link_bytes_per_second flops_per_second"),
    ]


class ContextInfo(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_int32, "algorithm initialise"),
        *_all(c_int64, "rows_q rows_kv steps num_pieces_q num_pieces_kv"),
        *_all(c_void_p, "pieces_q pieces_kv"),
        *_all(c_double, "ring_seconds all_gather_seconds ulysses_seconds"),
    ]


class ContextStep(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_int32, "owner send_to send_own_to receive_from"),
        *_all(c_int32, "gradient_to gradient_from gradient_home_from reserved"),
        ("calls", c_int64),
    ]


class ContextCall(Structure):
    _fields_ = [_SIZE, *_all(c_int64, "window_left window_right num_blocks"), ("blocks", c_void_p)]


class PlanOptions(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_int32, "device_kind device_index"),
        ("kernel", c_char_p),
        *_all(c_int32, "threads batch_invariant early_start ignored deterministic reserved"),
    ]


class DeviceInfo(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_int32, "kind index compute_capability multiprocessors"),
        *_all(c_int64, "shared_memory_per_block memory_bytes"),
        ("name", c_char * 256),
    ]


class BuildInfo(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_char_p, "version compiler build_type cuda_targets cpu_target"),
        *_all(c_int32, "cuda reserved"),
    ]


class Verdict(Structure):
    _fields_ = [
        _SIZE,
        *_all(c_char_p, "kernel refusal declines note"),
        *_all(c_int32, "automatic reserved"),
    ]


VERDICT_VISITOR = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Verdict))


# Functions by name, without "flashcore_": the type of the result, and of the arguments.
_PLAN_OPTIONS, _PLAN, _STREAM, _STATUS = POINTER(PlanOptions), c_void_p, c_void_p, c_int32
_WORKSPACE = (c_void_p, c_size_t)  # its address and its bytes
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "last_error": (c_char_p,),
    "version": (c_char_p,),
    "reload_tuning": (None,),
    "problem_init": (_STATUS, POINTER(Problem), c_size_t),
    "gradients_init": (_STATUS, POINTER(GradientTensors), c_size_t),
    "append_problem_init": (_STATUS, POINTER(AppendProblem), c_size_t),
    "plan_options_init": (_STATUS, _PLAN_OPTIONS, c_size_t),
    "plan_create": (_STATUS, POINTER(Problem), _PLAN_OPTIONS, POINTER(_PLAN)),
    "backward_plan_create": (
        *(_STATUS, POINTER(Problem), POINTER(GradientTensors)),
        *(_PLAN_OPTIONS, POINTER(_PLAN)),
    ),
    "plan_destroy": (None, _PLAN),
    "plan_kernel": (c_char_p, _PLAN),
    "plan_reason": (c_char_p, _PLAN),
    "plan_workspace_bytes": (c_size_t, _PLAN),
    # The arguments are packed as bytes, see _plan.py.
    "plan_run": (_STATUS, _PLAN, c_char_p, *_WORKSPACE, _STREAM),
    "plan_run_backward": (_STATUS, _PLAN, POINTER(BackwardArguments), *_WORKSPACE, _STREAM),
    "merge": (_STATUS, POINTER(MergeProblem), POINTER(MergeArguments), _PLAN_OPTIONS, _STREAM),
    "append": (_STATUS, POINTER(AppendProblem), POINTER(AppendArguments), _PLAN_OPTIONS, _STREAM),
    "append_and_attend": (
        *(_STATUS, POINTER(AppendProblem), POINTER(AppendArguments)),
        *(_PLAN, POINTER(Arguments), _PLAN_OPTIONS, *_WORKSPACE, _STREAM),
    ),
    "quantize": (
        *(_STATUS, POINTER(QuantizeProblem), POINTER(QuantizeArguments)),
        *(_PLAN_OPTIONS, _STREAM),
    ),
    "transpose_v": (
        *(_STATUS, POINTER(Tensor), c_void_p, POINTER(Tensor), c_void_p),
        *(_PLAN_OPTIONS, _STREAM),
    ),
    "context_problem_init": (_STATUS, POINTER(ContextProblem), c_size_t),
    "context_plan_create": (_STATUS, POINTER(ContextProblem), POINTER(_PLAN)),
    "context_plan_destroy": (None, _PLAN),
    "context_plan_info": (_STATUS, _PLAN, POINTER(ContextInfo)),
    "context_plan_step": (_STATUS, _PLAN, c_int64, POINTER(ContextStep)),
    "context_plan_call": (_STATUS, _PLAN, c_int64, c_int64, POINTER(ContextCall)),
    "visit_verdicts": (_STATUS, POINTER(Problem), _PLAN_OPTIONS, VERDICT_VISITOR, c_void_p),
    "device_count": (_STATUS, POINTER(c_size_t)),
    "device_get": (_STATUS, c_size_t, POINTER(DeviceInfo)),
    "build_info_get": (_STATUS, POINTER(BuildInfo)),
}


def library_path() -> pathlib.Path:
    forced = os.environ.get("FLASHCORE_LIBRARY")
    if forced:
        return pathlib.Path(forced).resolve()
    # In an editable install the library is in another folder of the package than this file.
    folders = [pathlib.Path(folder) for folder in sys.modules["flashcore"].__path__]
    found = [folder / "libflashcore.so" for folder in folders]
    return next((path for path in found if path.exists()), found[0])


def _load() -> ctypes.CDLL:
    path = library_path()
    if not path.exists():
        raise ImportError(
            f"flashcore: there is no {path}, wanted the shared library of the wheel; set "
            "FLASHCORE_LIBRARY to use one that was built elsewhere"
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as problem:  # the message names the file
        raise ImportError(
            f"flashcore: {problem}; wanted Linux on the processor that the wheel was built for, "
            "with a glibc no older than its builder's"
        ) from problem
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"flashcore_{name}", None)
        if function is None:
            raise ImportError(
                f"flashcore: {path} has no function flashcore_{name}, wanted the shared library of "
                "this package's version"
            )
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()


# Names of the library, outside of quotes, that differ in Python.
_PYTHON_WORDS = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i32": "int32",
    "i64": "int64",
    "boolean": "bool",
    "o": "out",
}
# The LSE is an output of `attention` and an input of `attention_backward`.
FORWARD_WORDS = _PYTHON_WORDS | {"lse": "out_lse"}
BACKWARD_WORDS = _PYTHON_WORDS | {"d_o": "d_out"}
_WORD = re.compile(rf"'[^']*'|(?<![./\w])({'|'.join(FORWARD_WORDS | BACKWARD_WORDS)})(?!\w)")


def in_python(sentence: bytes | None, words: dict[str, str] = FORWARD_WORDS) -> str:
    """Returns a message of the library with Python's names of arguments and dtypes."""
    text = (sentence or b"").decode(errors="replace")
    return _WORD.sub(lambda found: words.get(found[0], found[0]), text)


def error(status: int, words: dict[str, str] = FORWARD_WORDS) -> Error:
    """Returns the exception for the calling thread's last call, which returned `status` != 0."""
    return BY_STATUS.get(status, InternalError)(in_python(library.flashcore_last_error(), words))


def check(status: int, words: dict[str, str] = FORWARD_WORDS) -> None:
    if status != 0:
        raise error(status, words)


_INITIALISE = {
    Problem: library.flashcore_problem_init,
    GradientTensors: library.flashcore_gradients_init,
    AppendProblem: library.flashcore_append_problem_init,
    ContextProblem: library.flashcore_context_problem_init,
    PlanOptions: library.flashcore_plan_options_init,
}
_Kind = TypeVar("_Kind", bound=Structure)


def sized(kind: type[_Kind]) -> _Kind:
    """Returns a struct of zeros, but for its size, which is the first member."""
    return kind(sizeof(kind))


def with_defaults(kind: type[_Kind]) -> _Kind:
    """Returns a struct with the library's defaults."""
    struct = kind()
    check(_INITIALISE[kind](struct, sizeof(struct)))
    return struct


# Members of structs that have other names in Python.
_IN_C = {"out": "o", "out_lse": "lse", "d_out": "d_o"}


@functools.cache
def _members(kind: type[Structure]) -> frozenset[str]:
    return frozenset(name for name, *_ in kind._fields_)


def fill(struct: _Kind, of: Callable[[Any], Any], given: dict[str, Any]) -> _Kind:
    """Sets the members of a struct to what `of` makes of the arrays or layouts of these names.

    Names that the struct does not have are ignored.
    """
    members = _members(type(struct))
    for name, value in given.items():
        member = _IN_C.get(name, name)
        if value is not None and member in members:
            setattr(struct, member, of(value))
    return struct


def version() -> str:
    """Returns the version of the library, for example "0.1.0"."""
    return library.flashcore_version().decode()


def build_info() -> dict[str, Any]:
    """Returns the library's version, compiler, build type, CUDA targets and CPU target."""
    info = sized(BuildInfo)
    check(library.flashcore_build_info_get(info))
    texts = ("version", "compiler", "build_type", "cuda_targets", "cpu_target")
    return {name: getattr(info, name).decode() for name in texts} | {"cuda": bool(info.cuda)}


def devices() -> list[dict[str, Any]]:
    """Returns the devices that attention can run on; the CPU is always there, and always first."""
    count = c_size_t()
    check(library.flashcore_device_count(count))
    found = []
    for position in range(count.value):
        info = sized(DeviceInfo)
        check(library.flashcore_device_get(position, info))
        found.append(
            {
                "kind": "cuda" if info.kind == CUDA else "cpu",
                "index": info.index,
                "name": info.name.decode(errors="replace"),
                "compute_capability": info.compute_capability,
                "multiprocessors": info.multiprocessors,
                "memory_bytes": info.memory_bytes,
            }
        )
    return found
