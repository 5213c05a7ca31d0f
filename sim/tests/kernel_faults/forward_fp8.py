"""Faults of fp8 kernels."""
from fault import Fault, problem

FP8_SHARED = "cuda/attention/fp8/"
FP8_SM90, FP8_UNIT = "cuda/forward_fp8_sm90/throughput/", "forward_fp8_sm90/throughput/d64.cu"
FP8 = problem("forward_fp8_sm90", "--dtype f8e4m3 --shape 1,1,200,64 --seqlen-kv 700 --causal")
FP8_LONG = problem("forward_fp8_sm90", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 2200")
# V stored transposed, with NaN in hidden columns: rows are done again.
FP8_V_TRANSPOSED = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_fp8_sm90", "--shapes", "none",
               "--narrow", "--dtypes", "f8e4m3", "--v-transposed", "--random", "6", "--random-seed", "0",
               "--largest-seqlen", "100", "--largest-head-dim", "64", "--most-heads", "2"]
FP8_V_TRANSPOSED_UNIT = "forward_fp8_sm90/throughput/v_transposed_d64.cu"
# V in two parts of 128 columns.
FP8_PARTS = problem("forward_fp8_sm90:options", "--dtype f8e4m3 --shape 1,1,70,256 --seqlen-kv 300")
FP8_PARTS_UNIT = "forward_fp8_sm90/throughput/options_e4m3_256.cu"
# Scores so large that blocks are computed again.
FP8_AGAIN = problem("forward_fp8_sm90", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 1200 --scale 0.25")
FP8_ADA, FP8_ADA_UNIT = "cuda/forward_fp8_sm89/throughput/", "forward_fp8_sm89/throughput/d64.cu"
FP8_ADA_PROBLEM = problem("forward_fp8_sm89", "--dtype f8e4m3 --shape 1,1,200,64 --seqlen-kv 700 --causal")
FP8_ADA_LARGE = problem("forward_fp8_sm89", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 300 --scale 1e8 --no-lse")
# A value that is NaN and that only some rows of a tile see.
FP8_ADA_HIDDEN = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_fp8_sm89", "--shapes", "none",
                  "--narrow", "--dtypes", "f8e4m3", "--random", "1", "--random-seed", "384", "--largest-seqlen", "100",
                  "--largest-head-dim", "64", "--most-heads", "2"]

FAULTS = [
    Fault("fp8_scores_not_awaited", FP8_UNIT, FP8, [
        (FP8_SM90 + "consumer.cuh", "    ptx::warpgroup_wait<1>();\n    ptx::warpgroup_pin(s);\n", "")],
          "register of wgmma touched in flight", more=True),
    Fault("fp8_values_before_they_are_transposed", FP8_UNIT, FP8, [
        (FP8_SM90 + "producer.cuh", "    if (!has_values) ptx::wait_for_earlier_grids();\n    has_values", "    has_values")],
          "race"),
    Fault("fp8_keys_released_before_they_are_read_again", FP8_UNIT, FP8_AGAIN, [
        (FP8_SM90 + "consumer.cuh", "    release_v();\n    if (again) {", "    release_v();\n    release_k();\n    if (again) {"),
        (FP8_SM90 + "consumer.cuh", "    release_k();\n    pack<S>(p, s);\n", "    pack<S>(p, s);\n")], "race"),
    Fault("fp8_options_first_part_of_v_twice", FP8_PARTS_UNIT, FP8_PARTS, [
        (FP8_SM90 + "producer.cuh", "task.column, task.kv_head,", "0, task.kv_head,")], "FAILED"),
    Fault("fp8_columns_in_the_order_of_keys", FP8_V_TRANSPOSED_UNIT, FP8_V_TRANSPOSED, [
        (FP8_SHARED + "exact_rows.cuh", "kv_head, 0) + column_of_key(key)", "kv_head, 0) + key")], "FAILED"),
    Fault("fp8_ones_without_a_proxy_fence", FP8_UNIT, FP8, [
        (FP8_SM90 + "kernel.cuh", "  ptx::fence_proxy_async();\n", "")], "fence.proxy.async", more=True),
    Fault("fp8_groups_meet_at_one_reference", FP8_UNIT, FP8_LONG, [
        (FP8_SM90 + "consumer.cuh", "factor.now[slot] = held > 0 ? ptx::exp2_approx(its_reference[slot] - raised) : 0.0F;",
         "factor.now[slot] = held > 0 ? 1.0F : 0.0F;")], "FAILED"),
    Fault("fp8_groups_sums_counted_again", FP8_UNIT, FP8_LONG, [
        (FP8_SM90 + "consumer.cuh", "      sum[slot] = 0;\n    }\n    return factor;", "    }\n    return factor;")],
          "FAILED", more=True),
    Fault("fp8_ada_tile_not_awaited", FP8_ADA_UNIT, FP8_ADA_PROBLEM, [
        (FP8_ADA + "attend.cuh", "    ptx::cp_async_wait<0>();\n", "")], "read of bytes in flight", more=True),
    Fault("fp8_ada_stage_loaded_while_it_is_read", FP8_ADA_UNIT, FP8_ADA_PROBLEM, [
        (FP8_ADA + "attend.cuh", "    __syncthreads();  // the tile has landed, and nothing reads the one before any more\n",
         "")], "race"),
    Fault("fp8_ada_tiles_meet_at_one_reference", FP8_ADA_UNIT, FP8_ADA_PROBLEM, [
        (FP8_ADA + "attend.cuh", "factor.now[slot] = ptx::exp2_approx(reference[slot] - raised);",
         "factor.now[slot] = 1;")], "FAILED"),
    Fault("fp8_ada_values_in_order", FP8_ADA_UNIT, FP8_ADA_PROBLEM, [
        (FP8_ADA + "scores.cuh", "const uint32_t bytes = parity == 0 ? 0x6420 : 0x7531;",
         "const uint32_t bytes = parity == 0 ? 0x6240 : 0x7351;")], "FAILED", more=True),
    Fault("fp8_ada_second_term_rescales_again", FP8_ADA_UNIT,
          problem("forward_fp8_sm89", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 250"), [
        (FP8_ADA + "attend.cuh", "    factor.before[0] = factor.before[1] = 1;\n", "")], "FAILED", more=True),
    Fault("fp8_ada_rows_with_hidden_values", FP8_ADA_UNIT, FP8_ADA_HIDDEN, [
        (FP8_ADA + "epilogue.cuh", "finite && fabsf", "(finite || true) && fabsf")], "FAILED"),
    Fault("fp8_ada_output_stored_twice_by_different_lanes", FP8_ADA_UNIT, FP8_ADA_LARGE, [
        (FP8_SHARED + "exact_rows.cuh", "  __syncwarp();  // other lanes have stored what they had\n",
         "")], "race", more=True),
    Fault("fp8_ada_scores_not_capped", FP8_ADA_UNIT,
          problem("forward_fp8_sm89", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 300 --softcap 0.5"), [
        (FP8_ADA + "attend.cuh", "  if (work.cap.cap_log2 > 0) cap_scores<S>(s, work.cap);\n", "")], "FAILED", more=True),
]
