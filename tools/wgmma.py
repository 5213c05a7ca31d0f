#!/usr/bin/env python3
"""Generates the asynchronous products (wgmma) of src/cuda/ptx/wgmma.cuh: an instruction names each of its registers,
so every width and type is a function of its own.

    wgmma.py FOLDER    writes FOLDER/cuda/ptx/wgmma_products.cuh
"""
import pathlib
import sys

import instances

NAME = "cuda/ptx/wgmma_products.cuh"
HALVES = [("f16", "f16.f16"), ("bf16", "bf16.bf16")]
# Where A is (ss: shared memory, rs: registers), names and types, K, widths, and whether a product learns only at run
# time if it adds.
PRODUCTS = [
    ("ss", HALVES, 16, [64, 96, 112, 128], False),
    ("rs", HALVES, 16, [64, 80, 96, 112, 128, 160, 192], False),
    ("ss", HALVES, 16, [256], True),
    ("ss", [("e4m3", "e4m3.e4m3")], 32, [64, 128], True),
    ("ss", [("e5m2", "e5m2.e5m2")], 32, [128], True),
    ("rs", [("e4m3", "e4m3.e4m3"), ("e4m3_e5m2", "e4m3.e5m2")], 32, [72, 136], True)]


def product(place: str, name: str, types: str, k: int, columns: int, at_run_time: bool) -> str:
    """Returns one function."""
    count = columns // 2  # accumulators of a thread
    in_registers, halves = place == "rs", k == 16
    inputs = [f'"r"(a[{i}])' for i in range(4)] if in_registers else ['"l"(a)']
    a = "{%s}" % ",".join(f"%{count + i}" for i in range(4)) if in_registers else f"%{count}"
    inputs.append('"l"(b)')
    b, adds = count + len(inputs) - 1, count + len(inputs)
    inputs.append('"r"(static_cast<int>(accumulate))' if at_run_time else '"n"(static_cast<int>(kAccumulate))')
    modes, template = "", []  # the majors of 16-bit operands
    if not at_run_time:
        template.append("Accumulate kAccumulate")
    if halves:
        template.append("Major kMajorB")
        if not in_registers and at_run_time:
            modes += ", 0"
        elif not in_registers:
            template.append("Major kMajorA = Major::k")
            modes += f", %{count + len(inputs)}"
            inputs.append('"n"(static_cast<int>(kMajorA))')
        modes += f", %{count + len(inputs)}"
        inputs.append('"n"(static_cast<int>(kMajorB))')
    registers = ",".join(f"%{i}" for i in range(count))
    accumulators = ", ".join(f'"+f"(d[{i // 4}][{i % 4}])' for i in range(count))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}k{k}.f32.{types}"
    return "\n".join([
        f"// PTX ISA: {instruction}, sm_90a; A in {'registers' if in_registers else 'shared memory'}.",
        *([f"template <{', '.join(template)}>"] if template else []),
        f"__device__ __forceinline__ void wgmma_{place}_{name}(float (&d)[{columns // 8}][4], "
        f"{'const uint32_t (&a)[4]' if in_registers else 'uint64_t a'}, uint64_t b"
        f"{', Accumulate accumulate' if at_run_time else ''}) {{",
        "  asm volatile(",
        rf'      "{{\n.reg .pred p;\nsetp.ne.b32 p, %{adds}, 0;\n"',
        f'      "{instruction} "',
        f'      "{{{registers}}}, "',
        rf'      "{a}, %{b}, p, 1, 1{modes};\n}}"',
        f"      : {accumulators}",
        f"      : {', '.join(inputs)}",
        '      : "memory");',
        "}", ""])


def text(of: tuple[int, ...] = ()) -> str:
    """Returns the header, or only products of these widths."""
    functions = [product(place, name, types, k, columns, at_run_time)
                 for place, named, k, widths, at_run_time in PRODUCTS for columns in widths if not of or columns in of
                 for name, types in named]
    return "\n".join(["// Made by tools/wgmma.py. The end of ptx/wgmma.cuh.", "#pragma once", "",
                      "namespace flashcore::cuda::ptx {", "", *functions, "}  // namespace flashcore::cuda::ptx", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    instances.write(pathlib.Path(sys.argv[1]) / NAME, text())
