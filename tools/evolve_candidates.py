#!/usr/bin/env python3
"""Turns kernels of this library into candidates of `flashcore evolve`: one file each, with one kernel of
the task's signature (docs/evolve.md). The files of the rung or kernel are the only source: its kernel
becomes a device function, its host code is dropped, and the headers from src/ are inlined before it.

usage: evolve_candidates.py FOLDER    writes FOLDER/ladder/*.cu, FOLDER/kernels/*.cu and FOLDER/ladder.jsonl,
                                      the rungs as proposals with their thoughts, in climbing order

00_unfused (three kernels), 13 and 14 (fp8 inputs) are not candidates.
"""
import json
import pathlib
import re
import sys

import wgmma

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"
LADDER = SRC / "cuda" / "ladder"
INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)

ARGUMENTS = ("{q} q, {k} k, {v} v, __half* o, float* lse, void* workspace, int batch,\n"
             "    int heads_q, int heads_kv, int seqlen_q, int seqlen_kv, int head_dim, float scale")
POINTER, MAP = "const __half*", "const __grid_constant__ CUtensorMap"

RUNG_PARAMS = """\
  const int64_t q_head = int64_t{seqlen_q} * HEAD_DIM, kv_head = int64_t{seqlen_kv} * HEAD_DIM;
  RungParams params{};
  params.q = %(q)s, params.k = %(k)s, params.v = %(v)s, params.o = o, params.lse = lse;
  params.q_stride = params.o_stride = {q_head * heads_q, q_head, HEAD_DIM};
  params.k_stride = params.v_stride = {kv_head * heads_q, kv_head, HEAD_DIM};
  params.lse_stride = {int64_t{seqlen_q} * heads_q, seqlen_q, 1};
  params.batch = batch, params.heads = heads_q;
  params.seqlen_q = seqlen_q, params.seqlen_kv = seqlen_kv, params.head_dim = HEAD_DIM;
  params.softmax_scale = scale;
  params.causal = CAUSAL != 0, params.causal_offset = seqlen_kv - seqlen_q;
"""
TILES = "batch * heads_q * ceil_div(seqlen_q, %s)"

# Per entry of the ladder: its file, the kernel with its template arguments, the type or the bytes of its
# shared memory, and the query rows per block. Optionally: the declared parameters (text, replacement).
RUNGS = {
    "01_scalar": ("01_scalar", "scalar_kernel", "Shared::bytes(HEAD_DIM)", "kBlockQ", {}),
    **{name: (name, f"{name[3:]}_kernel<HEAD_DIM>", "sizeof(Shared<HEAD_DIM>)", "kBlockQ", {})
       for name in ("02_wmma_qk", "03_vector_pv", "04_wmma_pv", "05_warp_softmax", "07_xor_swizzle",
                    "08_register_softmax", "09_fused_epilogue")},
    **{f"06_cp_async{suffix}": ("06_cp_async", f"cp_async_kernel<HEAD_DIM, {stages}, {producer}>",
                                f"sizeof(Shared<HEAD_DIM, {stages}>)", "kBlockQ", {})
       for suffix, stages, producer in (("", 2, "false"), ("_s3", 3, "false"), ("_s2_producer", 2, "true"),
                                        ("_s3_producer", 3, "true"))},
    **{f"10_large_tiles{suffix}": ("10_large_tiles", f"large_tiles_kernel<HEAD_DIM, {rows}>",
                                   f"sizeof(Shared<HEAD_DIM, {rows}>)", str(rows), {})
       for suffix, rows in (("", 64), ("_q128", 128))},
    "11_warp_specialized": ("11_warp_specialized", "warp_specialized_kernel<HEAD_DIM>",
                            "sizeof(Shared<HEAD_DIM>)", "kBlockQ", {}),
    "12_mma_sync": ("12_mma_sync", "mma_sync_kernel<Config<HEAD_DIM, WARPS>>",
                    "sizeof(Config<HEAD_DIM, WARPS>::Shared)", "16 * WARPS", {
                        "kBlocksPerSm = 16 / kWarps;": "kBlocksPerSm = WARPS_PER_SM / kWarps;",
                        "kBlockKv = 64;": "kBlockKv = BLOCK_KV;",
                        "kStepKeys = kHeadDim == 64 ? 64 : 16;": "kStepKeys = STEP_KEYS;"}),
    "15_wgmma_tma": ("15_wgmma_tma", "wgmma_tma_kernel<Config<HEAD_DIM>>", "sizeof(Config<HEAD_DIM>::Shared)",
                     "kBlockQ", {"CUtensorMap q, k, v;": "const CUtensorMap &q, &k, &v;"}),
}
# The parameters; the first value is the current one.
PARAMETERS = {"12_mma_sync": """\
//@ param WARPS {4, 8, 2}
//@ param BLOCK_KV {64, 128}
//@ param STEP_KEYS {64, 32, 16}
//@ param WARPS_PER_SM {16, 12, 8}
"""}

THROUGHPUT = SRC / "cuda" / "forward_sm80" / "throughput"
THROUGHPUT_PARAMETERS = """\
//@ param WARPS {4, 2}
//@ param ROW_GROUPS {2, 1}
//@ param BLOCK_KV {64, 32, 128}
//@ param BLOCKS_PER_SM {2, 1, 3}
//@ param Q_IN_REGISTERS {true, false}
"""
# Values that the kernel's host code passes, computed by each block: costs some divisions per block.
THROUGHPUT_BODY = """\
  __shared__ Params params;
  if (threadIdx.x + threadIdx.y == 0) {
    const int64_t q_head = int64_t{seqlen_q} * HEAD_DIM, kv_head = int64_t{seqlen_kv} * HEAD_DIM;
    Params p{};
    p.q = {q, q_head * heads_q, q_head, HEAD_DIM};
    p.k = {k, kv_head * heads_kv, kv_head, HEAD_DIM};
    p.v = {v, kv_head * heads_kv, kv_head, HEAD_DIM};
    p.o = o, p.o_batch = q_head * heads_q, p.o_head = q_head, p.o_row = HEAD_DIM;
    p.lse = lse, p.lse_batch = int64_t{seqlen_q} * heads_q, p.lse_head = seqlen_q, p.lse_row = 1;
    p.batch = batch, p.heads_q = heads_q, p.heads_kv = heads_kv;
    p.seqlen_q = seqlen_q, p.seqlen_kv = seqlen_kv;
    p.head_dim_qk = p.head_dim_v = HEAD_DIM;
    p.diagonal = attention::Diagonal::bottom_right;
    constexpr Config c = kConfigs[0];
    p.q_pass_bytes = p.k_pass_bytes = p.v_pass_bytes = 2 * HEAD_DIM * c.copied_rows();
    p.band = %(band)s;
    p.softmax_scale = p.score_unit = scale;
    p.score_unit_log2 = scale * 1.44269504F;
    const auto heads = static_cast<uint32_t>(batch * heads_q);
    const uint32_t rows = (20 << 20) / (4 * HEAD_DIM);
    p.order.batch_heads = heads;
    p.order.q_tiles = static_cast<uint32_t>((seqlen_q + c.block_q() - 1) / c.block_q());
    p.order.section_heads = attention::section_heads(rows, static_cast<uint32_t>(seqlen_kv),
                                                     static_cast<uint32_t>(heads_q / heads_kv), heads);
    p.order.longest_first = CAUSAL != 0;
    p.by_tiles = attention::divisor(p.order.q_tiles);
    p.by_section = attention::divisor(p.order.section_heads * p.order.q_tiles);
    p.by_section_heads = attention::divisor(p.order.section_heads);
    p.by_heads_q = attention::divisor(static_cast<uint32_t>(heads_q));
    p.by_group = attention::divisor(static_cast<uint32_t>(heads_q / heads_kv));
    p.splits = 1;
    p.o_type = ElementType::f16;
    p.whole_chunks = p.o_vectors = p.chunks_qk = p.chunks_v = true;
    params = p;
  }
  __syncthreads();
"""


def expanded(text: str, seen: set[str]) -> str:
    """Returns the text with includes from src/ inlined, each file once, and no host code."""
    def expand(match: re.Match) -> str:
        name = match[1]
        if name in seen or name.startswith("cuda/host/") or name.endswith(("rung_table.hpp", "launch.hpp")):
            return ""
        seen.add(name)
        inner = wgmma.text((64, 128)) if name == wgmma.NAME else (SRC / name).read_text()
        for file, end in (("rung.hpp", "enum class RungInput"), ("rung_common.cuh", "// --- launch ---")):
            if name == f"cuda/ladder/{file}":
                inner = inner[:inner.index(end)] + "}  // namespace flashcore::cuda::ladder\n"
        return expanded(inner, seen)
    return INCLUDE.sub(expand, text).replace("#pragma once\n", "")


def device_function(text: str, kernel: str) -> tuple[str, str]:
    """Returns the text with the kernel as a device function at its end, and the kernel's launch bounds."""
    name = kernel.split("<")[0]
    head = re.search(r"__global__ void __launch_bounds__\(((?:(?!__global__)[\s\S])*?)\)\n\s*" + name
                     + r"\(([^()]*)\) \{", text)
    assert head, name
    arguments = re.sub(r"const __grid_constant__ ([^,]+?) (\w+)(?=,|$)", r"const \1& \2", head[2])
    text = (text[:head.start()] + f"__device__ __forceinline__ void {name}({arguments}) {{" + text[head.end():])
    host = re.search(r"\n(?://[^\n]*\n)*(?:template <[^\n]*>\n)?cudaError_t", text[head.start():])
    end = head.start() + host.start() + 1 if host else len(text)
    return text[:end], head[1]


def literals(text: str) -> list[str]:
    """Returns the first three string literals, adjacent ones joined: a rung's name, addition and prediction."""
    found = re.findall(r'((?:"(?:[^"\\]|\\.)*"\s*)+)', text)[:3]
    return ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', one)).replace('\\"', '"') for one in found]


def thoughts() -> dict[str, tuple[str, str]]:
    """Returns each ladder entry's addition and prediction."""
    result = {}
    for path in sorted(LADDER.glob("[0-9]*.cu")):
        for part in re.split(r"const Rung k", path.read_text())[1:]:
            name, adds, prediction = literals(part)
            result[name] = (adds, prediction)
    return result


def launch_lines(grid: str, block: str, maps: str = "") -> str:
    return f"//@ launch grid {grid}\n//@ launch block {block}\n//@ launch shared shared_bytes\n{maps}"


def rung(name: str, adds: str) -> str:
    file, kernel, shared, block_q, changes = RUNGS[name]
    path = LADDER / f"{file}.cu"
    own = path.read_text()
    for old, new in changes.items():
        assert old in own, (name, old)
        own = own.replace(old, new)
    own, bounds = device_function(own, kernel)
    text = expanded(own, set()) + "}  // namespace\n}  // namespace flashcore::cuda::ladder\n"
    # The bounds depend on the kernel's template arguments.
    arguments = re.search(r"<(.*)>", kernel)
    for formal, actual in template_arguments(own, kernel.split("<")[0], arguments[1] if arguments else ""):
        bounds = re.sub(rf"\b{formal}\b", actual, bounds)
    is_tma = name == "15_wgmma_tma"
    is_persistent = name == "11_warp_specialized"
    threads = split_arguments(bounds)[0]
    grid = TILES % "block_q"
    if is_persistent:
        grid = f"min({grid}, kMinBlocks_ * multiprocessors)"
    maps = ""
    if is_tma:
        maps = ("//@ launch map q box block_q, 64 swizzle 128\n//@ launch map k box block_kv, 64 swizzle 128\n"
                "//@ launch map v box block_kv, 64 swizzle 128\n")
    constants = {"shared_bytes": shared, "block_q": block_q, "threads": threads}
    if is_persistent:
        constants["kMinBlocks_"] = "kMinBlocks"
    if is_tma:
        constants["block_kv"] = "kBlockKv"
    call = f"  {kernel}({'{q, k, v}, ' if is_tma else ''}params{', order' if is_persistent else ''});\n"
    order = ""
    if is_persistent:
        order = """\
  const auto batch_heads = static_cast<uint32_t>(batch * heads_q);
  const attention::TileOrder order{
      batch_heads, static_cast<uint32_t>(ceil_div(seqlen_q, kBlockQ)),
      attention::section_heads((32 << 20) / (4 * HEAD_DIM), static_cast<uint32_t>(seqlen_kv), 1, batch_heads),
      true};
"""
    kind = MAP if is_tma else POINTER
    pointers = dict.fromkeys("qkv", "nullptr") if is_tma else {"q": "q", "k": "k", "v": "v"}
    repaired = RUNG_PARAMS % pointers
    if is_tma:  # its guard against NaN in V needs V's address, which a map does not give
        text = text.replace("finish.repair_from = tiles.whole * kBlockKv;", "finish.repair_from = INT_MAX;")
    return (f"// {name}: {adds}.\n// Made of src/cuda/ladder/{file}.cu by tools/evolve_candidates.py.\n"
            + launch_lines(grid, "threads", maps) + PARAMETERS.get(name, "") + "#include <cuda.h>\n" + text
            + wrapped("flashcore::cuda::ladder", constants, bounds, kind, repaired + order + call))


def wrapped(namespace: str, constants: dict[str, str], bounds: str, kind: str, body: str) -> str:
    numbers = "".join(f'extern "C" __constant__ int {name} = static_cast<int>({value});\n'
                      for name, value in constants.items())
    arguments = ARGUMENTS.format(q=kind, k=kind, v=kind)
    return (f"\nusing namespace {namespace};\nusing namespace flashcore::cuda;\n{numbers}\n"
            f'extern "C" __global__ void __launch_bounds__({bounds}) attention(\n    {arguments}) {{\n{body}}}\n')


def split_arguments(text: str) -> list[str]:
    pieces, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def template_arguments(text: str, name: str, actual: str) -> list[tuple[str, str]]:
    head = re.search(r"template <([^\n]*)>\n__device__ __forceinline__ void " + name + r"\(", text)
    if not head:
        return []
    formal = [one.split()[-1] for one in split_arguments(head[1])]
    return list(zip(formal, split_arguments(actual)))


def throughput() -> str:
    """Returns forward_sm80_throughput for head dimension 64 without features."""
    config = (THROUGHPUT / "config.hpp").read_text()
    seen = {"cuda/forward_sm80/throughput/config.hpp"}
    row = re.search(r"Config\{\.head_dim_qk = 64,\n.*?\.q_in_registers = true\}", config, re.DOTALL)
    for old, new in {".warps = 4": ".warps = WARPS", ".row_groups = 2": ".row_groups = ROW_GROUPS",
                     ".block_kv = 64": ".block_kv = BLOCK_KV", ".blocks_per_sm = 2": ".blocks_per_sm = BLOCKS_PER_SM",
                     ".q_in_registers = true": ".q_in_registers = Q_IN_REGISTERS"}.items():
        assert old in row[0], old
        config = config.replace(row[0], row[0].replace(old, new))
        row = re.search(r"Config\{\.head_dim_qk = 64,\n.*?\.q_in_registers = \w+\}", config, re.DOTALL)
    limit = "c.smem_bytes() <= kSmallSharedMemory"  # here a block may use what Hopper offers
    assert limit in config
    config = config.replace(limit, "c.smem_bytes() <= 227 * 1024")
    config = expanded(config, seen)
    kernel = (THROUGHPUT / "kernel.cuh").read_text()
    kernel, _ = device_function(kernel, "forward_kernel<0, Fp16, Features::none>")
    kernel = expanded(kernel, seen)
    body = THROUGHPUT_BODY % {"band": "{-1, CAUSAL ? 0 : -1}"}
    constants = {"shared_bytes": "kConfigs[0].smem_bytes()", "block_q": "kConfigs[0].block_q()",
                 "threads": "kConfigs[0].threads()"}
    return ("// forward_sm80_throughput for head dimension 64, without features.\n"
            "// Made of src/cuda/forward_sm80/throughput by tools/evolve_candidates.py.\n"
            + launch_lines(TILES % "block_q", "threads") + THROUGHPUT_PARAMETERS
            + "#include <cuda_fp16.h>\n" + config + kernel
            + wrapped("flashcore::cuda::forward_sm80::throughput", constants,
                      "kConfigs[0].threads(), kConfigs[0].blocks_per_sm", POINTER,
                      body + "  forward_kernel<0, Fp16, Features::none>(params);\n"))


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    known = thoughts()
    proposals = []
    for name, (adds, prediction) in known.items():
        if name not in RUNGS:
            continue
        source = rung(name, adds)
        # A replay skips the seed, which every run has anyway.
        first = {"operator": "seed"} if not proposals else {"version": 1}
        proposals.append({**first, "name": name, "source": source,
                          "thought": f"{adds[0].upper()}{adds[1:]}. Predicted: {prediction}."})
        (folder / "ladder").mkdir(parents=True, exist_ok=True)
        (folder / "ladder" / f"{name}.cu").write_text(source)
    (folder / "ladder.jsonl").write_text("".join(json.dumps(one) + "\n" for one in proposals))
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels" / "forward_sm80_throughput.cu").write_text(throughput())
    return 0


if __name__ == "__main__":
    sys.exit(main())
