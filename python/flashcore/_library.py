"""The shared library behind its C interface: loading it, its structs, its status codes.

The library lies beside this file; FLASHCORE_LIBRARY names another one, for working on the library
itself. The structs mirror flashcore.h; thanks to `struct_size` either side may be older.
"""

import ctypes
import os
import pathlib
import re
import sys
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

from ._errors import BY_STATUS, Error, InternalError

MAX_RANK = 4
CPU, CUDA = 0, 1
OPTIONAL_TENSORS = (
    "bias",
    "mask",
    "alibi_slopes",
    "sinks",
    "q_scale",
    "k_scale",
    "v_scale",
    "cu_seqlens_q",
    "cu_seqlens_kv",
    "seqlens_q",
    "seqlens_kv",
    "causal_offsets",
    "o_scale",
    "dropout_state",
)
# The structs have these in this order; the last two come later.
_FIRST_TENSORS = OPTIONAL_TENSORS[:-2]
# Tensors of problems over caches, which follow in the structs, in this order.
CACHE_TENSORS = (
    "page_table",
    "kv_indptr",
    "kv_indices",
    "kv_last_page_len",
    "cache_leftpad",
    "page_status",
    "tree_mask",
)
LARGEST = ("amax_o", "amax_s")
_LAST_TENSORS = ("dropout_state", *CACHE_TENSORS, "o_scale", *LARGEST)
APPEND_TENSORS = (
    "k_new",
    "v_new",
    "k",
    "v",
    "seqlens_kv",
    "seqlens_new",
    "cu_seqlens_new",
    "page_table",
    "kv_indptr",
    "kv_indices",
    "cache_leftpad",
    "page_status",
    "k_scale",
    "v_scale",
    "rope_cos",
    "rope_sin",
    "q",
    "q_out",
)
MERGE_TENSORS = ("o_a", "o_b", "lse_a", "lse_b", "o", "lse")
QUANTIZE_TENSORS = ("x", "x_out", "scale", "mean", "cu_seqlens", "seqlens")


class Tensor(Structure):
    _fields_ = [
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK),
        ("stride", c_int64 * MAX_RANK),
    ]


class Problem(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, Tensor) for name in ("q", "k", "v", "o", "lse", *_FIRST_TENSORS)),
        ("has_softmax_scale", c_int32),
        ("softmax_scale", c_float),
        ("softcap", c_float),
        ("causal", c_int32),
        ("alignment", c_int32),
        ("dropout_p", c_float),
        ("causal_offset", c_int64),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("kv_scale_block", c_int64),
        ("max_seqlen_q", c_int64),
        ("max_seqlen_kv", c_int64),
        *((name, Tensor) for name in _LAST_TENSORS),
        ("v_transposed", c_int32),
        ("reserved", c_int32),
    ]


class Arguments(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_void_p) for name in ("q", "k", "v", "o", "lse", *_FIRST_TENSORS)),
        ("dropout_seed", c_uint64),
        ("dropout_offset", c_uint64),
        *((name, c_void_p) for name in _LAST_TENSORS),
    ]


class MergeProblem(Structure):
    _fields_ = [("struct_size", c_size_t), *((name, Tensor) for name in MERGE_TENSORS)]


class MergeArguments(Structure):
    _fields_ = [("struct_size", c_size_t), *((name, c_void_p) for name in MERGE_TENSORS)]


class AppendProblem(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, Tensor) for name in APPEND_TENSORS),
        ("kv_scale_block", c_int64),
        ("rotary_dim", c_int64),
        ("rope_base", c_float),
        ("rope_scale", c_float),
        ("interleaved", c_int32),
        ("v_transposed", c_int32),
    ]


class AppendArguments(Structure):
    _fields_ = [("struct_size", c_size_t), *((name, c_void_p) for name in APPEND_TENSORS)]


class QuantizeProblem(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, Tensor) for name in QUANTIZE_TENSORS),
        ("scale_block", c_int64),
        ("max_seqlen", c_int64),
    ]


class QuantizeArguments(Structure):
    _fields_ = [("struct_size", c_size_t), *((name, c_void_p) for name in QUANTIZE_TENSORS)]


class GradientTensors(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *(
            (name, Tensor)
            for name in ("d_o", "dq", "dk", "dv", "d_lse", "d_bias", "d_sinks", "d_alibi_slopes")
        ),
    ]


class PlanOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device_kind", c_int32),
        ("device_index", c_int32),
        ("kernel", c_char_p),
        ("threads", c_int32),
        ("batch_invariant", c_int32),
        ("early_start", c_int32),
        ("ignored", c_int32),
        ("deterministic", c_int32),
        ("reserved", c_int32),
    ]


class DeviceInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("index", c_int32),
        ("compute_capability", c_int32),
        ("multiprocessors", c_int32),
        ("shared_memory_per_block", c_int64),
        ("memory_bytes", c_int64),
        ("name", c_char * 256),
    ]


class BuildInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("version", c_char_p),
        ("compiler", c_char_p),
        ("build_type", c_char_p),
        ("cuda_targets", c_char_p),
        ("cpu_target", c_char_p),
        ("cuda", c_int32),
        ("reserved", c_int32),
    ]


class Verdict(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kernel", c_char_p),
        ("refusal", c_char_p),
        ("declines", c_char_p),
        ("note", c_char_p),
        ("automatic", c_int32),
        ("reserved", c_int32),
    ]


VERDICT_VISITOR = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Verdict))


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
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "flashcore_last_error": (c_char_p, []),
        "flashcore_version": (c_char_p, []),
        "flashcore_reload_tuning": (None, []),
        "flashcore_problem_init": (c_int32, [POINTER(Problem), c_size_t]),
        "flashcore_plan_options_init": (c_int32, [POINTER(PlanOptions), c_size_t]),
        "flashcore_plan_create": (
            c_int32,
            [POINTER(Problem), POINTER(PlanOptions), POINTER(c_void_p)],
        ),
        "flashcore_gradients_init": (c_int32, [POINTER(GradientTensors), c_size_t]),
        "flashcore_backward_plan_create": (
            c_int32,
            [
                POINTER(Problem),
                POINTER(GradientTensors),
                POINTER(PlanOptions),
                POINTER(c_void_p),
            ],
        ),
        "flashcore_plan_destroy": (None, [c_void_p]),
        "flashcore_plan_kernel": (c_char_p, [c_void_p]),
        "flashcore_plan_reason": (c_char_p, [c_void_p]),
        "flashcore_plan_workspace_bytes": (c_size_t, [c_void_p]),
        # The arguments are packed as bytes, see _plan.py.
        "flashcore_plan_run": (c_int32, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p]),
        "flashcore_plan_run_backward": (
            c_int32,
            [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
        ),
        "flashcore_merge": (
            c_int32,
            [POINTER(MergeProblem), POINTER(MergeArguments), POINTER(PlanOptions), c_void_p],
        ),
        "flashcore_append_problem_init": (c_int32, [POINTER(AppendProblem), c_size_t]),
        "flashcore_append": (
            c_int32,
            [POINTER(AppendProblem), POINTER(AppendArguments), POINTER(PlanOptions), c_void_p],
        ),
        "flashcore_append_and_attend": (
            c_int32,
            [
                POINTER(AppendProblem),
                POINTER(AppendArguments),
                c_void_p,
                POINTER(Arguments),
                POINTER(PlanOptions),
                c_void_p,
                c_size_t,
                c_void_p,
            ],
        ),
        "flashcore_quantize": (
            c_int32,
            [
                POINTER(QuantizeProblem),
                POINTER(QuantizeArguments),
                POINTER(PlanOptions),
                c_void_p,
            ],
        ),
        "flashcore_transpose_v": (
            c_int32,
            [
                POINTER(Tensor),
                c_void_p,
                POINTER(Tensor),
                c_void_p,
                POINTER(PlanOptions),
                c_void_p,
            ],
        ),
        "flashcore_visit_verdicts": (
            c_int32,
            [POINTER(Problem), POINTER(PlanOptions), VERDICT_VISITOR, c_void_p],
        ),
        "flashcore_device_count": (c_int32, [POINTER(c_size_t)]),
        "flashcore_device_get": (c_int32, [c_size_t, POINTER(DeviceInfo)]),
        "flashcore_build_info_get": (c_int32, [POINTER(BuildInfo)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                f"flashcore: {path} has no function {name}, wanted the shared library of this "
                "package's version"
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


def new_problem() -> Problem:
    problem = Problem()
    check(library.flashcore_problem_init(problem, sizeof(problem)))
    return problem


def new_gradients() -> GradientTensors:
    gradients = GradientTensors()
    check(library.flashcore_gradients_init(gradients, sizeof(gradients)))
    return gradients


def new_append_problem() -> AppendProblem:
    problem = AppendProblem()
    check(library.flashcore_append_problem_init(problem, sizeof(problem)))
    return problem


def new_plan_options() -> PlanOptions:
    options = PlanOptions()
    check(library.flashcore_plan_options_init(options, sizeof(options)))
    return options


def version() -> str:
    """Returns the version of the library, for example "0.1.0"."""
    return library.flashcore_version().decode()


def build_info() -> dict[str, Any]:
    """Returns the library's version, compiler, build type, CUDA targets and CPU target."""
    info = BuildInfo(struct_size=sizeof(BuildInfo))
    check(library.flashcore_build_info_get(info))
    texts = ("version", "compiler", "build_type", "cuda_targets", "cpu_target")
    return {name: getattr(info, name).decode() for name in texts} | {"cuda": bool(info.cuda)}


def devices() -> list[dict[str, Any]]:
    """Returns the devices that attention can run on; the CPU is always there, and always first."""
    count = c_size_t()
    check(library.flashcore_device_count(count))
    found = []
    for position in range(count.value):
        info = DeviceInfo(struct_size=sizeof(DeviceInfo))
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
