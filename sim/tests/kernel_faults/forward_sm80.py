"""Faults of the forward pass on Ampere."""
from fault import Fault, problem

SM80, SM80_LATENCY = "cuda/forward_sm80/throughput/", "cuda/forward_sm80/latency/"
AMPERE = problem("forward_sm80_throughput", "--dtype bf16 --shape 1,1,100,64 --seqlen-kv 300")
AMPERE_UNIT = "forward_sm80/throughput/bf16_config0_none.cu"
AMPERE_PAGED = problem("forward_sm80_throughput:paged",
                       "--dtype bf16 --shape 2,4,200,128 --heads-kv 2 --seqlen-kv 700 --paged 16 --causal")
AMPERE_PAGED_UNIT = "forward_sm80/throughput/bf16_config2_paged.cu"
# Random problems whose tables have indices out of range.
AMPERE_TABLE = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_sm80_throughput:paged", "--shapes", "none",
                "--paged", "--narrow", "--dtypes", "bf16", "--random", "60", "--random-seed", "0", "--largest-seqlen",
                "60", "--largest-head-dim", "64", "--most-heads", "4"]
AMPERE_TABLE_UNIT = "forward_sm80/throughput/bf16_config0_paged.cu"
STORED = problem("forward_sm80_throughput:fp8", "--dtype f8e4m3 --shape 1,1,100,64 --seqlen-kv 300")
STORED_UNIT = "forward_sm80/throughput/fp8_config0_fp8.cu"
# Values in blocks of 64 keys, each with a scale.
STORED_BLOCKS = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_sm80_throughput:fp8", "--shapes", "none",
                 "--random", "1", "--random-seed", "1039", "--largest-seqlen", "112", "--most-heads", "4"]
AMPERE_LATENCY = problem("forward_sm80_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 1000")
AMPERE_LATENCY_UNIT = "small80_bf16_config0.cu"

FAULTS = [
    Fault("references_written_before_all_have_read", "fp16_config2_none.cu",
          problem("forward_sm80_throughput", "--shape 1,1,100,128 --seqlen-kv 600"),
          [(SM80 + "block_shared_state.cuh", "  __syncwarp();  // the four lanes of a row have read it\n", "")],
          "race", commit="c783c18"),
    Fault("dropped_infinity", "forward_sm80/throughput/fp16_config0_all.cu",
          ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_sm80_throughput",
           "--shapes", "none", "--random", "1", "--random-seed", "192", "--largest-seqlen", "48",
           "--largest-head-dim", "64"], [
        (SM80 + "mainloop.cuh",
         "        if (p.dropout) drop(s, p, block_state.task, place, first_key, kinds);\n",
         "        if (p.dropout && !kinds) drop(s, p, block_state.task, place, first_key, kinds);\n"),
        (SM80 + "epilogue.cuh",
         "o + column, nonfinite_of(value * weight)", "o + column, nonfinite_of(value)")],
          "FAILED", commit="44b5fdf"),

    Fault("sm80_tile_not_awaited", AMPERE_UNIT, AMPERE, [
        (SM80 + "mainloop.cuh", "    ptx::cp_async_wait<0>();\n    __syncthreads();  // the tile",
         "    __syncthreads();  // the tile")], "read of bytes in flight", more=True),
    Fault("sm80_no_barrier_after_the_wait", AMPERE_UNIT, AMPERE, [
        (SM80 + "mainloop.cuh", "    __syncthreads();  // the tile has landed, and nothing reads "
         "the one before any more\n", "")], "read of bytes in flight"),
    Fault("sm80_one_stage", AMPERE_UNIT, AMPERE, [
        (SM80 + "mainloop.cuh", "      loader.load(p, shared, stage ^ 1);",
         "      loader.load(p, shared, stage);")], "read of bytes in flight", more=True),
    Fault("sm80_fp8_next_bytes_before_all_have_converted", STORED_UNIT, STORED, [
        (SM80 + "mainloop.cuh", "      __syncthreads();  // and its bytes may be overwritten\n", "")], "race"),
    Fault("sm80_fp8_scales_of_the_first_keys", STORED_UNIT, STORED_BLOCKS, [
        (SM80 + "fp8_scales.cuh", "of_key(min(first_key + lane % (8 * kProducts), len_kv - 1))",
         "of_key(min(lane % (8 * kProducts), len_kv - 1))")], "max scaled error", more=True),
    Fault("sm80_largest_scores_of_one_sign", "forward_sm80/throughput/fp16_config0_logits.cu",
          problem("forward_sm80_throughput", "--shape 1,2,100,64 --max-logit"), [
        (SM80 + "outputs.cuh", "    if (bits < kSign) {\n", "    if (bits > kSign) {\n")], "max_logit", more=True),
    Fault("sm80_latency_not_awaited", AMPERE_LATENCY_UNIT, AMPERE_LATENCY, [
        (SM80_LATENCY + "attend.cuh", "  ptx::cp_async_wait<kPending>();\n", "")],
          "read of bytes in flight", more=True),
    Fault("sm80_latency_warp_does_not_meet", AMPERE_LATENCY_UNIT, AMPERE_LATENCY, [
        (SM80_LATENCY + "attend.cuh", "  ptx::cp_async_wait<kPending>();\n  __syncwarp();\n",
         "  ptx::cp_async_wait<kPending>();\n")], "read of bytes in flight"),
    Fault("sm80_latency_next_copy_before_all_have_read", AMPERE_LATENCY_UNIT, AMPERE_LATENCY, [
        (SM80_LATENCY + "attend.cuh", "    __syncwarp();  // keys and values have been read\n", "")
    ], "race"),
    Fault("sm80_latency_partial_results_unordered", AMPERE_LATENCY_UNIT, AMPERE_LATENCY, [
        (SM80_LATENCY + "kernel.cuh", "  __syncthreads();\n  if constexpr (!kWhole) place.find",
         "  if constexpr (!kWhole) place.find")], "read of unwritten shared memory", more=True),
    Fault("paged80_place_of_the_tile_before", AMPERE_PAGED_UNIT, AMPERE_PAGED, [
        (SM80 + "paged_loader.cuh", "    row += S::kBlockKv;\n    look_up(p, thread);\n",
         "    look_up(p, thread);\n    row += S::kBlockKv;\n")], "FAILED"),
    Fault("paged80_rows_of_the_first_pass", AMPERE_PAGED_UNIT, AMPERE_PAGED, [
        (SM80 + "paged_loader.cuh", "source(p.k, of_lane(2 * pass, thread), thread)",
         "source(p.k, of_lane(0, thread), thread)")], "FAILED", more=True),
    Fault("paged80_page_index_not_clamped", AMPERE_TABLE_UNIT, AMPERE_TABLE, [
        (SM80 + "paged_loader.cuh", "attention::clamped(stored, 0, p.cache.num_pages - 1)", "stored")],
          "FAILED"),
    Fault("paged80_keys_that_nobody_sees", AMPERE_TABLE_UNIT, AMPERE_TABLE, [
        (SM80 + "paged_loader.cuh",
         "    if (static_cast<uint32_t>(row - origin.seen_begin) >= origin.seen_rows) return;\n", "")],
          "outside of global memory", more=True),
    Fault("paged80_origin_read_before_they_are_written", AMPERE_PAGED_UNIT, AMPERE_PAGED, [
        (SM80 + "paged_loader.cuh", "    __syncthreads();\n", "")], "unwritten shared memory", more=True),
]
