"""The structs of _library.py have the members of flashcore.h, of the same types, in its order."""

import ctypes
import pathlib
import re

import pytest

from flashcore import _library as lib
from flashcore._operands import CACHE_TENSORS, LARGEST, OPTIONAL_TENSORS

HEADER = pathlib.Path(__file__).parents[2] / "include/flashcore/flashcore.h"
TYPES = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
    "flashcore_tensor": lib.Tensor,
    "const char*": ctypes.c_char_p,
}
STRUCTS = {
    "tensor": lib.Tensor,
    "problem": lib.Problem,
    "arguments": lib.Arguments,
    "gradients": lib.GradientTensors,
    "backward_arguments": lib.BackwardArguments,
    "merge_problem": lib.MergeProblem,
    "merge_arguments": lib.MergeArguments,
    "append_problem": lib.AppendProblem,
    "append_arguments": lib.AppendArguments,
    "quantize_problem": lib.QuantizeProblem,
    "quantize_arguments": lib.QuantizeArguments,
    "context_problem": lib.ContextProblem,
    "context_info": lib.ContextInfo,
    "context_step": lib.ContextStep,
    "context_call": lib.ContextCall,
    "plan_options": lib.PlanOptions,
    "device_info": lib.DeviceInfo,
    "build_info": lib.BuildInfo,
    "verdict": lib.Verdict,
}
MEMBER = re.compile(r"((?:const )?\w+\*?)\s+(\w+)(?:\[(\w+)\])?;")


def members(name):
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    name = f"flashcore_{name}"
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", text, re.DOTALL)[1]
    counts = {"FLASHCORE_MAX_RANK": lib.MAX_RANK}
    for kind, member, count in MEMBER.findall(body):
        of = TYPES[kind] if kind in TYPES or not kind.endswith("*") else ctypes.c_void_p
        yield member, of * int(counts.get(count, count)) if count else of


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_is_that_of_the_header(name):
    assert list(STRUCTS[name]._fields_) == list(members(name))


def test_each_optional_tensor_of_a_problem_is_known_by_name():
    tensors = [name for name, kind in members("problem") if kind is lib.Tensor]
    known = (*OPTIONAL_TENSORS, *CACHE_TENSORS, *LARGEST)
    assert sorted(tensors) == sorted(("q", "k", "v", "o", "lse", *known))
