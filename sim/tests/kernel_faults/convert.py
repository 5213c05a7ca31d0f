"""Faults of what converts tensors."""
from fault import Fault

# Groups in tiles, rows that fill no tile; larger groups, whose tiles meet in global memory; means.
QUANTIZE = ["quantize", "--device", "sim", "--sim-seed", "5", "--check", "--dtype", "bf16",
            "--shape", "2,3,151,72"]
QUANTIZE_TILES = [*QUANTIZE, "--kv-scale-block", "16"]
QUANTIZE_MEANS = [*QUANTIZE, "--smooth-k"]
QUANTIZE_TENSOR = [*QUANTIZE, "--scales", "tensor"]
QUANTIZE_UNIT = "convert/quantize.cu"
QUANTIZE_KERNEL = "cuda/convert/quantize/kernel.cuh"
CONVERTED_UNIT = "convert/fp8.cu"
CONVERTED = "cuda/convert/fp8/kernel.cuh"
# Packed batches, scales and LSEs among them.
CONVERTED_RANDOM = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_converted:fp8", "--shapes",
                    "none", "--random", "15", "--random-seed", "196", "--largest-seqlen", "64", "--most-heads", "4"]
V_ROWS_UNIT = "convert/rows.cu"
V_ROWS = "cuda/convert/v_rows/kernel.cuh"
V_ROWS_RANDOM = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_converted:v_rows", "--shapes", "none",
                 "--v-transposed", "--random", "15", "--random-seed", "0", "--largest-seqlen", "64", "--most-heads", "4"]

FAULTS = [
    Fault("quantize_scales_before_all_rows_are_seen", QUANTIZE_UNIT, QUANTIZE_TILES, [
        (QUANTIZE_KERNEL, "  __syncthreads();\n  if (thread < count_of_groups) {\n    const float scale",
         "  if (thread < count_of_groups) {\n    const float scale")], "race"),
    Fault("quantize_groups_not_cleared_for_all", QUANTIZE_UNIT, QUANTIZE_TILES, [
        (QUANTIZE_KERNEL, "groups.largest[thread] = 0;\n  __syncthreads();\n", "groups.largest[thread] = 0;\n")],
          "race", more=True),
    Fault("quantize_scales_not_awaited", QUANTIZE_UNIT, QUANTIZE_TILES, [
        (QUANTIZE_KERNEL, "  }\n  __syncthreads();\n  each_chunk", "  }\n  each_chunk")], "race", more=True),
    Fault("quantize_means_of_unfinished_sums", QUANTIZE_UNIT, QUANTIZE_MEANS, [
        (QUANTIZE_KERNEL, "step /= 2) {\n    __syncthreads();\n", "step /= 2) {\n")], "race"),
    Fault("quantize_largest_stored_and_not_joined", QUANTIZE_UNIT, QUANTIZE_TENSOR, [
        (QUANTIZE_KERNEL, """  atomicMax(reinterpret_cast<uint32_t*>(p.scale) + scale_place(p, tile, tile.first / p.block),
            largest);
""", """  reinterpret_cast<uint32_t*>(p.scale)[scale_place(p, tile, tile.first / p.block)] = largest;
""")], "race", more=True),
    Fault("quantize_lanes_meet_in_a_branch", QUANTIZE_UNIT, QUANTIZE_TILES, [
        (QUANTIZE_KERNEL, "        body(first + before", "        if (before % 2 == 0) body(first + before")],
          "divergent", more=True),
    Fault("quantize_scale_of_another_group", QUANTIZE_UNIT, QUANTIZE_TILES, [
        (QUANTIZE_KERNEL, "groups.scale[row < tile.end ? group_of(row) : 0];", "groups.scale[0];")],
          "FAILED", more=True),
    Fault("converted_powers_left_out", CONVERTED_UNIT, CONVERTED_RANDOM, [
        (CONVERTED, "return scale * lift * power.up[0] * power.up[1];", "return scale * lift;")], "FAILED"),
    Fault("converted_scales_of_the_first_entry", CONVERTED_UNIT, CONVERTED_RANDOM, [
        (CONVERTED, "return {entry, place.head, row};", "return {0, place.head, row};")], "FAILED", more=True),
    Fault("v_rows_in_the_order_of_columns", V_ROWS_UNIT, V_ROWS_RANDOM, [
        (V_ROWS, "kChunk * group + tile::fp8_key_of_slot(slot);", "kChunk * group + slot;")], "FAILED"),
    Fault("v_rows_of_a_tile_not_awaited", V_ROWS_UNIT, V_ROWS_RANDOM, [
        (V_ROWS, "  __syncthreads();\n", "")], "race", more=True),
]
