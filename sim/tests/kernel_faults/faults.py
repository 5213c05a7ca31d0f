"""The faults that inject.py injects: what each changes, what shows it, what the simulator says."""
import dataclasses

SM90 = "cuda/forward_sm90/"
THROUGHPUT, LATENCY, WIDE = SM90 + "throughput/", SM90 + "latency/", SM90 + "latency_wide/"
SM80, SM80_LATENCY = "cuda/forward_sm80/throughput/", "cuda/forward_sm80/latency/"
LADDER = "cuda/ladder/"


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    unit: str  # the translation unit to compile, by the end of its path
    arguments: list  # of flashcore
    edits: list  # of (file below src/, what it says, what it says with the fault)
    reported: str | None  # what the simulator says, or None: it says nothing
    commit: str = ""  # which mended the fault, where this project had it
    why: str = ""  # why the simulator says nothing
    more: bool = False  # only tried with --all: others like it are tried always


def problem(kernel, *options, seed=5):
    return ["run", "--device", "sim", "--check", "--no-time", "--kernel", kernel, "--sim-seed",
            str(seed), *" ".join(options).split()]


# Three consumers in turns, which see different numbers of blocks.
TALL = problem("forward_sm90_throughput:192x128", "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 600 --causal")
TALL_UNIT = "forward_sm90/throughput/bf16_config0.cu"
# Blocks that take one tile after another, by a counter.
TALL_MANY = problem("forward_sm90_throughput:192x128",
                    "--dtype bf16 --shape 1,3,400,64 --seqlen-kv 700 --causal")
# Rings that go round more than once.
TALL_LONG = problem("forward_sm90_throughput:192x128",
                    "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 1600 --causal")
# Scores so large that blocks are computed again.
TALL_AGAIN = problem("forward_sm90_throughput:192x128",
                     "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 1600 --scale 10")
# Outputs go from registers.
WIDE_HEAD_UNIT = "forward_sm90/throughput/bf16_config6.cu"

# A chunk of a prompt over pages: several boxes per tile, several tiles of keys.
PAGED = problem("forward_sm90_throughput:paged", "--dtype bf16 --shape 2,4,200,128 --heads-kv 2 --seqlen-kv 700 --paged 16 --causal")
# Several boxes per page.
PAGED_BOXES = problem("forward_sm90_throughput:paged",
                      "--dtype bf16 --shape 1,2,150,128 --heads-kv 1 --seqlen-kv 400 --paged 48 --causal")
PAGED_UNIT = "forward_sm90/throughput/bf16_config5_paged.cu"

CLUSTER = problem("forward_sm90_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 512")
CLUSTER_UNIT = "small_bf16_config0_none.cu"
CLUSTER_LONG = problem("forward_sm90_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 1536")
SHARED = problem("forward_sm90_latency:wide", "--dtype bf16 --shape 1,1,128,128 --seqlen-kv 1024")
SHARED_UNIT = "forward_sm90/latency/bf16_none.cu"

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

# One query against pages, in parts of two units each; every warp has more tiles than its ring.
DECODE = problem("decode_sm80", "--dtype bf16 --shape 2,8,1,128 --heads-kv 2 --seqlen-kv 700 --paged 16")
DECODE_UNIT = "decode80_bf16_config1.cu"
SM80_DECODE = "cuda/decode_sm80/split_kv/"
# More units than blocks, and a last tile that is not full.
DECODE_MANY = problem("decode_sm80", "--dtype bf16 --shape 4,8,5,128 --seqlen-kv 300 --paged 7")
# Random problems whose tables have indices out of range.
DECODE_TABLE = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "decode_sm80", "--shapes", "none", "--paged",
                "--random", "60", "--random-seed", "0", "--largest-seqlen", "60", "--largest-head-dim", "128",
                "--most-heads", "4"]
DECODE_FP8 = problem("decode_sm80", "--dtype bf16 --kv-dtype f8e4m3 --shape 2,8,1,128 --heads-kv 2 "
                     "--seqlen-kv 900 --paged 16 --with k_scale,v_scale")
DECODE_FP8_UNIT = "decode80_bf16_config3.cu"
# Two warps share the columns of O.
DECODE_WIDE = problem("decode_sm80", "--dtype bf16 --shape 2,8,1,256 --heads-kv 2 --seqlen-kv 700 --paged 16")
DECODE_WIDE_UNIT = "decode80_bf16_config8.cu"
DECODE_MASK = problem("decode_sm80", "--dtype bf16 --shape 2,8,1,128 --heads-kv 2 --seqlen-kv 700 --paged 16 --with mask")
DECODE_PAIRS_UNIT = "decode80_bf16_config12.cu"

# Keys as boxes of tensor maps, row by row; several units per block; a window that begins inside of a tile.
STREAM = problem("decode_sm90", "--dtype bf16 --shape 2,8,1,128 --heads-kv 2 --seqlen-kv 1300 --paged 16")
STREAM_UNIT = "decode90_bf16_config1.cu"
STREAM_ROWS = problem("decode_sm90", "--dtype bf16 --shape 2,8,1,128 --heads-kv 2 --seqlen-kv 1300 --paged 7")
STREAM_MANY = problem("decode_sm90", "--dtype bf16 --shape 9,8,1,128 --heads-kv 4 --seqlen-kv 300")
STREAM_WINDOW = problem("decode_sm90", "--dtype bf16 --shape 2,8,1,128 --heads-kv 2 --seqlen-kv 700 --paged 16 "
                        "--causal --window 301,0")
# More entries than a warp has lanes.
STREAM_CROWD = problem("decode_sm90", "--dtype bf16 --shape 40,4,1,128 --heads-kv 2 --seqlen-kv 150")
SM90_DECODE = "cuda/decode_sm90/stream_kv/"

# Entries that are cut in two, tiles of 64 and of 6 heads, a last tile that is not full.
LATENT = problem("mla_sm90", "--dtype bf16 --shape 2,70,1,576 --heads-kv 1 --seqlen-kv 700 --head-dim-v 512 --v-in-k "
                 "--paged 16")
LATENT_UNIT = "latent/mla_bf16.cu"
# Random problems whose caches have NaN behind the last key.
LATENT_TAILS = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "mla_sm90", "--shapes", "none", "--latent",
                "--paged", "--narrow", "--random", "8", "--random-seed", "0", "--largest-seqlen", "100"]
MLA = "cuda/mla_sm90/latent/"

JOINT = ["run", "--backward", *problem("backward_sm80", "--dtype bf16 --shape 1,1,300,64 --seqlen-kv 500")[1:]]
JOINT_UNIT = "general/bf16_config0_joint_none.cu"
# Warps that share keys: two of them on 9.0.
SHARING = ["run", "--backward", *problem("backward_sm80", "--dtype bf16 --shape 1,1,200,128 --seqlen-kv 200")[1:]]
SHARING_UNIT = "general/bf16_config2_joint_none.cu"
DROPPED = ["run", "--backward",
           *problem("backward_sm80", "--dtype bf16 --shape 1,1,300,64 --seqlen-kv 100 --dropout 0.3")[1:]]
DROPPED_UNIT = "general/bf16_config0_joint_all.cu"
# The general kernels: dSinks is theirs.
BACKWARD = ["run", "--backward",
            *problem("backward_sm80", "--dtype bf16 --shape 1,1,300,64 --seqlen-kv 100 --with sinks")[1:]]
BACKWARD_UNIT = "general/bf16_config0_dk_dv_all.cu"
GENERAL = "cuda/backward_sm80/general/"

# Tiles of keys add to dQ in a fixed order; at head dimension 128 consumers add some products themselves.
HOPPER = ["run", "--backward", *problem("backward_sm90", "--dtype bf16 --shape 1,2,500,128")[1:]]
HOPPER_UNIT = "backward_sm90/throughput/bf16_config1_deterministic.cu"
HOPPER_WINDOW = [*HOPPER, "--window", "70,30"]
HOPPER_LONG = ["run", "--backward", *problem("backward_sm90", "--dtype bf16 --shape 1,6,300,128 --seqlen-kv 600")[1:]]
ANY_ORDER = ["run", "--backward", "--any-order",
             *problem("backward_sm90", "--dtype bf16 --shape 1,1,300,64 --seqlen-kv 1100")[1:]]
ANY_ORDER_UNIT = "backward_sm90/throughput/bf16_config0.cu"
HOPPER_ROWS_UNIT = "backward_sm90/throughput/rows.cu"
SM90_BACKWARD = "cuda/backward_sm90/throughput/"

# Blocks of queries and of keys.
# Four blocks share the queries of a tile.
HOPPER_SPLIT = ["run", "--backward", *problem("backward_sm90:split", "--dtype bf16 --shape 1,1,700,128 --seqlen-kv 200")[1:]]
HOPPER_SPLIT_UNIT = "backward_sm90/throughput/split4_bf16_config1.cu"
HOPPER_SPLIT_FOLDER = "cuda/backward_sm90/throughput/split/"
HOPPER_WIDE = ["run", "--backward", *problem("backward_sm90:wide", "--dtype bf16 --shape 1,1,250,256 --causal")[1:]]
HOPPER_WIDE_UNIT = "backward_sm90/wide/wide_bf16.cu"
HOPPER_WIDE_FOLDER = "cuda/backward_sm90/wide/"

RUNG_11 = problem("11_warp_specialized", "--shape 1,1,200,64 --seqlen-kv 550 --causal")
RUNG_12 = problem("12_mma_sync", "--shape 1,1,100,64 --seqlen-kv 200")
RUNG_15 = problem("15_wgmma_tma", "--shape 1,1,100,64 --seqlen-kv 600")

# Two blocks share one SM, and scores are far apart.
CLUSTER_FAR = problem("forward_sm90_latency",
                      "--dtype bf16 --shape 1,8,64,64 --seqlen-kv 1024 --scale 1")
CLUSTER_FAR_UNIT = "small_bf16_config1_none.cu"

# Groups in tiles, rows that fill no tile; larger groups, whose tiles meet in global memory; means.
QUANTIZE = ["quantize", "--device", "sim", "--sim-seed", "5", "--check", "--dtype", "bf16",
            "--shape", "2,3,151,72"]
QUANTIZE_TILES = [*QUANTIZE, "--kv-scale-block", "16"]
QUANTIZE_MEANS = [*QUANTIZE, "--smooth-k"]
QUANTIZE_TENSOR = [*QUANTIZE, "--scales", "tensor"]
QUANTIZE_UNIT = "convert/quantize.cu"
QUANTIZE_KERNEL = "cuda/convert/quantize/kernel.cuh"

# This project's own, each as it was before the commit that mended it.
OURS = [
    Fault("reduction_inside_one_lane_branch", TALL_UNIT, TALL_MANY, [
        (THROUGHPUT + "consumer.cuh",
         """    const uint32_t barrier =  // by all lanes: see ptx::uniform
        shared + S::kQEmpty + 8 * (next.slot() * S::kConsumers + static_cast<uint32_t>(group));
    __syncwarp();
    if (lane() == 0) {
""",
         """    __syncwarp();
    if (lane() == 0) {
      const uint32_t barrier =
          shared + S::kQEmpty +
          8 * (ptx::uniform(next.passed) % S::kQSlots * S::kConsumers +
               static_cast<uint32_t>(group));
""")], "divergent collective", commit="0931e50"),
    Fault("references_written_before_all_have_read", "fp16_config2_none.cu",
          problem("forward_sm80_throughput", "--shape 1,1,100,128 --seqlen-kv 600"),
          [(SM80 + "block_shared_state.cuh", "  __syncwarp();  // the four lanes of a row have read it\n", "")],
          "race", commit="c783c18"),
    Fault("maps_nobody_wrote", "common/mapped_plan.cpp",
          problem("forward_sm90_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 0"), [
        (SM90 + "common/mapped_plan.cpp",
         """  cudaError_t error = one(maps.q, args.q, planned.q);
  maps.k = maps.v = maps.q;
  if (planned.k.rows == 0) return error;  // extents of 0 cannot be encoded
""",
         """  if (planned.k.rows == 0 || planned.q.rows == 0) return cudaSuccess;
  cudaError_t error = one(maps.q, args.q, planned.q);
""")], "no tensor map there", commit="86faac9"),
    Fault("barrier_by_a_warp_in_parts", TALL_UNIT, TALL, [
        (THROUGHPUT + "kernel.cuh",
         "  __syncwarp();\n  ptx::named_barrier_sync(kFirstBarrier, kWarpgroupThreads);\n",
         "  ptx::named_barrier_sync(kFirstBarrier, kWarpgroupThreads);\n")],
          None, commit="f02046b",
          why="PTX: all lanes execute the same barrier instruction, which is what .aligned asks. "
              "They come to it one by one, which compute-sanitizer's synccheck takes for "
              "divergence"),
    Fault("wait_for_products_in_a_branch", "forward_sm90/throughput/bf16_config5.cu",
          problem("forward_sm90_throughput",
                  "--dtype bf16 --shape 1,1,128,128 --seqlen-kv 1600 --scale 10"), [
        (THROUGHPUT + "consumer.cuh",
         """    ptx::hold_back(again);
    ptx::warpgroup_wait<0>();
    pin_outputs();
    if constexpr (S::kConfig.split_softmax) {
      if (!again) {
""",
         """    if constexpr (S::kConfig.split_softmax) {
      if (!again) {
        ptx::warpgroup_wait<0>();
        pin_outputs();
"""),
        (THROUGHPUT + "consumer.cuh",
         "    if (again) {\n      save_sum();\n",
         "    if (again) {\n      ptx::warpgroup_wait<0>();  // frees the registers of P\n"
         "      save_sum();\n"),
        (THROUGHPUT + "consumer.cuh",
         "    release_k();\n    release_v();\n    k_ring.next();\n"
         "    attention::pack<typename S::Element, kPackedAfter",
         "    release_k();\n    ptx::warpgroup_wait<0>();\n    pin_outputs();\n    release_v();\n"
         "    k_ring.next();\n    attention::pack<typename S::Element, kPackedAfter")],
        "divergent warpgroup", commit="d85c516"),
    Fault("slot_released_before_the_warp_has_met", TALL_UNIT,
          problem("forward_sm90_throughput:192x128",
                  "--dtype bf16 --shape 1,9,192,64 --seqlen-kv 1024 --causal", seed=12), [
        (THROUGHPUT + "consumer.cuh", "    wait_for_k();\n    __syncwarp();\n    release_k();\n",
         "    wait_for_k();\n    release_k();\n"),
        (THROUGHPUT + "consumer.cuh", "    wait_for_v();\n    __syncwarp();\n    release_v();\n",
         "    wait_for_v();\n    release_v();\n")], "deadlock", commit="1c7edf3"),
    Fault("keys_released_while_lanes_read_them_again", TALL_UNIT, TALL_AGAIN, [
        (THROUGHPUT + "consumer.cuh", "      __syncwarp();  // all lanes have read Q and K\n", "")],
          "race", commit="0247c64"),
    Fault("rows_of_large_references", TALL_UNIT,
          problem("forward_sm90_throughput:192x128",
                  "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 600 --scale 1e8 --no-lse"), [
        (THROUGHPUT + "epilogue.cuh",
         "      (zero == 0 || factor != factor) && fabsf(c.reference[slot]) < "
         "attention::kLargestReference;\n",
         "      zero == 0 || factor != factor;\n")], "FAILED", commit="fb8ab5c"),
    Fault("output_stored_twice_by_different_lanes", WIDE_HEAD_UNIT,
          problem("forward_sm90_throughput", "--dtype bf16 --shape 1,1,128,192 --seqlen-kv 300 "
                  "--head-dim-v 128 --scale 1e8 --no-lse"), [
        (THROUGHPUT + "exact_rows.cuh",
         "  __syncwarp();  // other lanes have stored what they had\n", "")],
          "race", commit="a0568a6"),
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
]

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
CONVERTED_UNIT = "convert/fp8.cu"
CONVERTED = "cuda/convert/fp8/kernel.cuh"
# Packed batches, scales and LSEs among them.
CONVERTED_RANDOM = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_converted:fp8", "--shapes",
                    "none", "--random", "15", "--random-seed", "196", "--largest-seqlen", "64", "--most-heads", "4"]

V_ROWS_UNIT = "convert/rows.cu"
V_ROWS = "cuda/convert/v_rows/kernel.cuh"
V_ROWS_RANDOM = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "forward_converted:v_rows", "--shapes", "none",
                 "--v-transposed", "--random", "15", "--random-seed", "0", "--largest-seqlen", "64", "--most-heads", "4"]

C = THROUGHPUT + "consumer.cuh"
K = THROUGHPUT + "kernel.cuh"
INJECTED = [
    Fault("throughput_scores_not_awaited", TALL_UNIT, TALL, [
        (C, "    ptx::warpgroup_wait<1>();\n    ptx::warpgroup_pin(s);\n", "")],
          "register of wgmma touched in flight"),
    Fault("throughput_output_not_awaited", TALL_UNIT, TALL, [
        (C, "    ptx::hold_back(again);\n    ptx::warpgroup_wait<0>();\n", "")],
          "register of wgmma touched in flight", more=True),
    Fault("throughput_last_product_not_awaited", TALL_UNIT, TALL, [
        (C, "    meanwhile();\n    ptx::warpgroup_wait<0>();\n", "    meanwhile();\n")],
          "register of wgmma touched in flight", more=True),
    Fault("throughput_values_not_awaited", TALL_UNIT, TALL, [
        (C, "    wait_for_v();\n    start_pv<S>(o, p, v_descriptor());\n    give_turn();\n",
         "    start_pv<S>(o, p, v_descriptor());\n    give_turn();\n")], "race", more=True),
    Fault("throughput_no_wgmma_fence", TALL_UNIT, TALL, [
        (C, "    pin_outputs();\n    ptx::warpgroup_fence();\n    start_qk", "    start_qk"),
    ], "missing wgmma.fence"),
    Fault("throughput_keys_released_early", TALL_UNIT, TALL_MANY, [
        (C, """    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(scores);
    release_k();
""", """    release_k();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(scores);
""")], "race"),
    Fault("throughput_parity_of_values", TALL_UNIT, TALL, [
        (C, "v_at().slot(), v_at().parity()", "v_at().slot(), v_at().parity() ^ 1")],
          "deadlock", more=True),
    Fault("throughput_q_released_before_outputs_are_read", TALL_UNIT,
          problem("forward_sm90_throughput:192x128",
                  "--dtype bf16 --shape 1,6,400,64 --seqlen-kv 400 --causal"), [
        (C, "      if constexpr (S::kStagesOutputs) ptx::tma_store_wait_read<0>();\n", "")],
          "write to an operand in use"),
    Fault("throughput_left_before_outputs_are_read", TALL_UNIT, TALL, [
        (K, "  if constexpr (S::kStagesOutputs) ptx::tma_store_wait_read<0>();\n", "")],
          "left before bulk stores had read"),
    Fault("throughput_no_proxy_fence_before_the_store", TALL_UNIT, TALL, [
        (THROUGHPUT + "epilogue.cuh", "  ptx::fence_proxy_async();\n", "")],
          "missing fence.proxy.async"),
    Fault("throughput_nobody_has_the_first_turn", TALL_UNIT, TALL, [
        (K, "  c.begin_turns();\n", "")], "deadlock"),
    Fault("throughput_a_turn_too_few", TALL_UNIT, TALL, [
        (C, "    if (takes_turn) {\n      wait_for_turn();\n      give_turn();\n    }\n", "")],
          "deadlock", more=True),
    Fault("throughput_keys_free_after_four_of_twelve_warps", TALL_UNIT, TALL, [
        (K, "&smem.k_empty[slot]), kConsumerWarps)", "&smem.k_empty[slot]), kWarpgroupWarps)")],
          "arrival out of phase"),
    Fault("throughput_no_first_barrier", TALL_UNIT, TALL, [
        (K, "  ptx::named_barrier_sync(kFirstBarrier, kWarpgroupThreads);\n", "")],
          "race", more=True),
    Fault("throughput_consumers_do_not_meet", TALL_UNIT, TALL, [
        (K, "    ptx::named_barrier_sync(kMeetBarrier, S::kConfig.threads());\n", "")],
          "no mbarrier there", more=True),
    Fault("throughput_registers_not_released", TALL_UNIT, TALL, [
        (K, "  ptx::release_registers<S::kConfig.producer_registers()>();\n", "")],
          "deadlock", more=True),
    Fault("throughput_outputs_staged_over_q", TALL_UNIT, TALL, [
        (K, "  if constexpr (S::kStagesOutputs) c.wait_for_warps();  // all four are done with Q\n",
         "")], "write to an operand in use"),
    Fault("throughput_one_task_slot", TALL_UNIT, TALL_MANY, [
        (THROUGHPUT + "shape.cuh", "kTaskSlots = 4", "kTaskSlots = 1")], "race"),
    Fault("throughput_half_the_bytes_expected", TALL_UNIT, TALL, [
        (THROUGHPUT + "producer.cuh", "ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);",
         "ptx::mbarrier_arrive_expect(barrier, Tile::kBytes / 2);")], "deadlock", more=True),
    Fault("throughput_task_found_without_meeting", TALL_UNIT, TALL_MANY, [
        (THROUGHPUT + "finder.cuh", "      find();\n      __syncwarp();\n", "      find();\n")],
          "race", more=True),
    Fault("throughput_outputs_packed_before_the_product", TALL_UNIT, TALL, [
        (C, "    bool again = unproven(total, right);\n",
         "    bool again = unproven(total, right);\n"
         "    if (!again) attention::pack<typename S::Element, 0, kPackedRegisters / 2>(p, s);\n")],
          "register of wgmma touched in flight", more=True),
    Fault("throughput_barriers_not_published", TALL_UNIT, TALL, [
        (K, "    ptx::mbarrier_init(ptx::shared_address(&smem.k_full[slot]), 1);\n  }\n"
         "  ptx::mbarrier_init_fence();\n",
         "    ptx::mbarrier_init(ptx::shared_address(&smem.k_full[slot]), 1);\n  }\n")],
          "mbarrier not published", more=True),
    Fault("throughput_one_lane_skips_the_vote", TALL_UNIT, TALL, [
        (C, "    bool again = unproven(total, right);\n",
         "    bool again = lane() == 7 || unproven(total, right);\n")], "divergent collective"),

    Fault("latency_each_warp_decides_to_wait_for_products", CLUSTER_FAR_UNIT, CLUSTER_FAR, [
        (LATENCY + "attend.cuh",
         "if (ptx::named_barrier_or(kGroupIsDone + group, kGroupThreads, !near)) [[unlikely]] {",
         "if (__any_sync(0xffffffffU, !near)) [[unlikely]] {")], "divergent warpgroup"),
    Fault("latency_cluster_not_awaited", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "kernel.cuh", "  if (S::kRanks > 1) ptx::cluster_wait();", "  ;")],
          "remote access before the block's start"),
    Fault("latency_sums_of_the_other_block_not_awaited", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "merge.cuh", "    this->wait_for_outputs();\n", "")], "race", more=True),
    Fault("latency_rows_of_the_other_block_not_awaited", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "merge.cuh", "    this->wait_for_rows();\n", "")], "race", more=True),
    Fault("latency_16_bytes_too_few_expected", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "copies.cuh", "ptx::mbarrier_arrive_expect(received, kBytes);",
         "ptx::mbarrier_arrive_expect(received, kBytes - 16);")], "read of bytes in flight"),
    Fault("latency_16_bytes_too_many_expected", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "copies.cuh", "ptx::mbarrier_arrive_expect(received, kBytes);",
         "ptx::mbarrier_arrive_expect(received, kBytes + 16);")], "deadlock", more=True),
    Fault("latency_warps_do_not_meet", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "merge_store.cuh",
         "    __syncwarp();\n    ptx::named_barrier_sync(kPair + warp, 2 * 32);\n",
         "    __syncwarp();\n")], "read of unwritten shared memory", more=True),
    Fault("latency_slot_refilled_before_all_have_read", CLUSTER_UNIT, CLUSTER_LONG, [
        (LATENCY + "attend.cuh",
         "    ptx::named_barrier_sync(kGroupIsDone + group, kGroupThreads);\n", "")],
          "write to an operand in use"),
    Fault("latency_parity_of_later_tiles", CLUSTER_UNIT, CLUSTER_LONG, [
        (LATENCY + "attend.cuh", "const uint32_t parity = i / kSlots % 2;",
         "const uint32_t parity = 0;")], "deadlock", more=True),
    Fault("latency_barriers_not_met", "small_bf16_config2_none.cu",
          problem("forward_sm90_latency", "--dtype bf16 --shape 1,8,64,64 --seqlen-kv 256"), [
        (LATENCY + "kernel.cuh", "  __syncthreads();\n", "")], "no mbarrier there"),
    Fault("latency_barriers_met_by_the_cluster_alone", CLUSTER_UNIT, CLUSTER, [
        (LATENCY + "kernel.cuh", "  __syncthreads();\n", "")], None,
          why="PTX: every mbarrier is published by fence.mbarrier_init.release.cluster before "
              "barrier.cluster.arrive.relaxed, and what is used before barrier.cluster.wait was "
              "initialised by the same thread", more=True),
    Fault("latency_left_before_the_earlier_grid", CLUSTER_UNIT, CLUSTER + ["--early-start"], [
        (LATENCY + "kernel.cuh",
         "  if (lane == 0) {\n    ptx::wait_for_earlier_grids();\n", "  if (lane == 0) {\n")],
          "left without waiting for the earlier grid"),

    Fault("wide_cluster_not_awaited", SHARED_UNIT, SHARED, [
        (WIDE + "kernel.cuh", "    ptx::cluster_wait();  // the other block",
         "    // the other block")
    ], "remote access before the block's start", more=True),
    Fault("wide_producer_parity", SHARED_UNIT, SHARED, [
        (WIDE + "copies.cuh", "(i / kSlots + 1) % 2", "(i / kSlots) % 2")], "race", more=True),
    Fault("wide_sums_not_awaited", SHARED_UNIT, SHARED, [
        (WIDE + "store.cuh",
         "    ptx::mbarrier_wait(ptx::shared_address(&smem.left[warp]), 0);\n", "")], "race"),
    Fault("wide_outputs_left_over_keys", SHARED_UNIT, SHARED, [
        (WIDE + "kernel.cuh", "    ptx::named_barrier_sync(kScored, 32 * kGroupWarps);"
         "  // nothing reads its K any more\n", "")], None,
          why="PTX: barrier.sync orders what comes before it in all its warps. Each warp of the "
              "warpgroup awaits its last scores before it takes its last turn, where the four "
              "meet", more=True),
    Fault("wide_only_the_own_block_is_told", SHARED_UNIT, SHARED, [
        (WIDE + "copies.cuh", "    if (lane < kRanks) {\n", "    if (lane == rank) {\n")],
          "deadlock", more=True),
    Fault("wide_slot_free_after_one_block", SHARED_UNIT, SHARED, [
        (WIDE + "copies.cuh", "kRanks * kGroupWarps);", "kGroupWarps);")],
          "write to an operand in use", more=True),
    Fault("wide_registers_acquired_too_many", SHARED_UNIT, SHARED, [
        (WIDE + "kernel.cuh", "    ptx::release_registers<kCopyRegisters>();\n", "")], "deadlock"),

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
    Fault("throughput_box_four_columns_on", TALL_UNIT, TALL, [
        (THROUGHPUT + "producer.cuh", "panel * Tile::kPanelColumns,\n                     row,",
         "panel * Tile::kPanelColumns + 4,\n                     row,")], "misaligned copy", more=True),
    Fault("throughput_store_before_the_first_row", TALL_UNIT, TALL, [
        (THROUGHPUT + "epilogue.cuh", "task.q_row + c.first_row() + first,",
         "task.q_row + c.first_row() + first - 8,")], "store before the tensor"),

    Fault("rung12_q_not_awaited", LADDER + "12_mma_sync.cu", RUNG_12, [
        (LADDER + "12_mma_sync.cu", "ptx::cp_async_wait<1>();", "ptx::cp_async_wait<2>();")],
          "read of bytes in flight", more=True),
    Fault("rung12_a_barrier_that_a_warp_skips", LADDER + "12_mma_sync.cu", RUNG_12, [
        (LADDER + "12_mma_sync.cu",
         "    __syncthreads();  // the tile has landed, and nothing reads "
         "the stage before any more\n",
         "    if (ptx::thread_index() >= 32) __syncthreads();\n")], "read of bytes in flight"),
    Fault("rung12_a_shuffle_that_a_lane_skips", LADDER + "12_mma_sync.cu", RUNG_12, [
        (LADDER + "12_mma_sync.cu", "      lazy_softmax(",
         "      if (lane_index() != 5) lazy_softmax(")], "divergent collective"),
    Fault("rung11_one_lane_arrives_for_the_others", LADDER + "11_warp_specialized.cu", RUNG_11, [
        (LADDER + "11_warp_specialized.cu",
         "      ptx::mbarrier_arrive(ptx::shared_address(&stage.empty));\n",
         "      if (threadIdx.x % kWarpSize == 0)\n"
         "        ptx::mbarrier_arrive(ptx::shared_address(&stage.empty));\n"),
        (LADDER + "11_warp_specialized.cu",
         """    for (Handover& stage : smem.stages) init(stage);
""",
         """    for (Handover& stage : smem.stages) {
      ptx::mbarrier_init(ptx::shared_address(&stage.full), kWarpSize);
      ptx::mbarrier_init(ptx::shared_address(&stage.empty), kConsumerWarps);
    }
""")], None,
          why="gap: process_tile() ends with __syncwarp, so the lane that arrives knows that the others "
              "have read. Where a warp skips a tile a late lane may miss a phase, which no seed "
              "that was tried shows", more=True),
    Fault("rung15_keys_released_before_the_product", LADDER + "15_wgmma_tma.cu", RUNG_15, [
        (LADDER + "15_wgmma_tma.cu",
         "    compute_scores<C>(s, ptx::shared_address(smem.q), "
         "ptx::shared_address(smem.slot[at.slot]));\n    release();\n",
         "    const auto k_slot = at.slot;\n    release();\n"
         "    compute_scores<C>(s, ptx::shared_address(smem.q), "
         "ptx::shared_address(smem.slot[k_slot]));\n")], "race", more=True),
    Fault("rung15_no_proxy_fence_after_the_signs", LADDER + "15_wgmma_tma.cu",
          [*RUNG_15, "--scale", "-0.125"], [
        (LADDER + "15_wgmma_tma.cu", "kConsumerThreads);\n      ptx::fence_proxy_async();\n"
         "      ptx::named_barrier_sync(kConsumerBarrier, kConsumerThreads);\n    }\n  }\n",
         "kConsumerThreads);\n"
         "      ptx::named_barrier_sync(kConsumerBarrier, kConsumerThreads);\n    }\n  }\n")],
          "missing fence.proxy.async"),
    Fault("rung15_no_wgmma_fence", LADDER + "15_wgmma_tma.cu", RUNG_15, [
        (LADDER + "15_wgmma_tma.cu", "  ptx::warpgroup_pin(o);\n  ptx::warpgroup_fence();\n",
         "  ptx::warpgroup_pin(o);\n")], "missing wgmma.fence", more=True),
    Fault("rung15_slot_free_after_three_of_four_warps", LADDER + "15_wgmma_tma.cu", RUNG_15, [
        (LADDER + "15_wgmma_tma.cu", "empty[slot]), kConsumerWarps)",
         "empty[slot]), kConsumerWarps - 1)")], "write to an operand in use", more=True),
    Fault("backward_tiles_read_before_they_came", BACKWARD_UNIT, BACKWARD, [
        (GENERAL + "gradients.cuh", "    ptx::cp_async_wait<kAhead>();\n",
         "    ptx::cp_async_wait<kAhead + 1>();\n")], "read of bytes in flight"),
    Fault("backward_tiles_loaded_before_all_have_read", BACKWARD_UNIT, BACKWARD, [
        (GENERAL + "gradients.cuh", "    __syncthreads();\n    if (kAhead > 0) advance",
         "    if (kAhead > 0) advance")], "race"),
    Fault("backward_rows_staged_without_a_barrier", BACKWARD_UNIT, BACKWARD, [
        (GENERAL + "store.cuh", "  __syncwarp();\n  const StoredRows", "  const StoredRows")], "race"),
    Fault("backward_word_of_another_key", DROPPED_UNIT, DROPPED, [
        (GENERAL + "scores.cuh", "const uint32_t to = (place + round) % 4,",
         "const uint32_t to = (place + round + 1) % 4,")], "check    FAILED"),
    Fault("joint_ds_read_before_it_is_complete", JOINT_UNIT, JOINT, [
        (GENERAL + "joint.cuh", "    __syncthreads();  // dS is complete, the tile has been read\n", "")], "race"),
    Fault("joint_nobody_waits_for_a_turn", JOINT_UNIT, JOINT, [
        (GENERAL + "joint.cuh", "    while (!has_come) has_come = my_turn.has_come();\n", "")], "race"),
    Fault("joint_turn_given_before_all_lanes_have_added", JOINT_UNIT, JOINT, [
        (GENERAL + "joint.cuh", "  __syncwarp();\n  if (lane == 0 && turn != nullptr)",
         "  if (lane == 0 && turn != nullptr)")], "race"),
    Fault("joint_turn_given_without_a_release", JOINT_UNIT, JOINT, [
        (GENERAL + "joint.cuh", "ptx::count_turn(turn)", "atomicAdd(turn, 1ULL)")], "race"),
    Fault("joint_blocks_wait_for_blocks_that_have_not_begun", JOINT_UNIT, JOINT, [
        (GENERAL + "joint.cuh", "static_cast<uint32_t>(atomicAdd(p.joint.next_block, 1ULL))",
         "ptx::block_index()")], "deadlock"),
    Fault("joint_weights_read_before_all_that_share_keys_have_stored", SHARING_UNIT, SHARING, [
        (GENERAL + "joint.cuh", "        ptx::named_barrier_sync(1 + warp / kConfig.sharing, 32 * kConfig.sharing);\n",
         "")], "race"),
    Fault("hopper_scores_not_awaited", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "      issue_dk(stage);\n      ptx::warpgroup_wait<1>();\n",
         "      issue_dk(stage);\n")], "register of wgmma touched in flight", more=True),
    Fault("hopper_ds_packed_while_dk_reads_it", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "      exponentiate(next);\n      ptx::warpgroup_wait<0>();\n",
         "      exponentiate(next);\n      pack();\n      ptx::warpgroup_wait<0>();\n")],
          "register of wgmma touched in flight", more=True),
    Fault("hopper_q_released_before_dk_has_read_it", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh",
         "      ptx::mbarrier_arrive(shared + S::kQEmpty + 8 * stage);\n      pack();\n", "      pack();\n"),
        (SM90_BACKWARD + "consumer.cuh", "      exponentiate(next);\n      ptx::warpgroup_wait<0>();\n",
         "      exponentiate(next);\n      ptx::mbarrier_arrive(shared + S::kQEmpty + 8 * stage);\n"
         "      ptx::warpgroup_wait<0>();\n")], "race", more=True),
    Fault("hopper_ds_of_the_other_consumer_not_awaited", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "      wait(S::kDsFull, ds_parity);\n", "")], "race", more=True),
    Fault("hopper_ds_overwritten_before_it_was_read", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "      wait(S::kDsEmpty, ds_parity ^ 1);\n", "")], "race"),
    Fault("hopper_ds_without_a_proxy_fence", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "    ptx::fence_proxy_async();\n    release(S::kDsFull);\n",
         "    release(S::kDsFull);\n")], "missing fence.proxy.async"),
    Fault("hopper_sums_without_a_proxy_fence", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "dq()[n]);\n    }\n    ptx::fence_proxy_async();\n",
         "dq()[n]);\n    }\n")], "missing fence.proxy.async", more=True),
    Fault("hopper_row_stats_not_expected", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "producer.cuh", "S::QTile::kBytes + S::kRowStatsBytes", "S::QTile::kBytes")],
          "race", more=True),
    Fault("hopper_two_steps_described", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "config.hpp", "kSteps = 4;", "kSteps = 2;")], "race"),
    Fault("hopper_q_free_after_one_consumer", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "kernel.cuh", "&smem.q_empty[stage]), kConsumers * kWarpgroupThreads)",
         "&smem.q_empty[stage]), kWarpgroupThreads)")], "arrival out of phase", more=True),
    Fault("hopper_nobody_waits_for_a_turn", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "adder.cuh", "      if (before != 0) ptx::wait_for_turn(turn, static_cast<uint32_t>(before));\n", "")], "race"),
    Fault("hopper_consumers_add_before_their_turn", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh",
         "      stage_dq();\n      if constexpr (S::kAddsItself) wait(S::kTurnHere + 8 * group, number % 2);\n",
         "      stage_dq();\n")], "race", more=True),
    Fault("hopper_turns_by_place_in_the_grid", HOPPER_UNIT, HOPPER_LONG, [
        (SM90_BACKWARD + "kernel.cuh", "S::kDeterministic ? atomicAdd(p.next_tile, 1U) : blockIdx.x",
         "blockIdx.x")], "deadlock"),
    Fault("hopper_turn_given_before_the_sums_are_there", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "adder.cuh", "      ptx::bulk_wait<0>();\n", "")], "race"),
    Fault("hopper_staging_free_before_it_was_read", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "adder.cuh", "      ptx::tma_store_wait_read<0>();\n", "")],
          "race", more=True),
    Fault("hopper_staging_not_awaited", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "    wait(S::kStagingFree + 8 * group, number % 2 ^ 1);\n",
         "")], "race", more=True),
    Fault("hopper_sums_of_the_other_tiles_not_awaited", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "    wait(S::kSumsHere + 8 * group, step.sums_parity);\n", "")], "race"),
    Fault("hopper_sums_fetched_before_their_turn", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "adder.cuh", "      if (before != 0) ptx::wait_for_turn(turn, static_cast<uint32_t>(before));\n",
         "      if (before != 0 && step.is_last == 0) ptx::wait_for_turn(turn, static_cast<uint32_t>(before));\n")], "race", more=True),
    Fault("hopper_rows_of_dq_staged_over_sums_in_use", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "    __syncwarp();\n  }\n  // Rows of dQ", "  }\n  // Rows of dQ")],
          "race", more=True),
    Fault("hopper_rows_of_dq_without_a_proxy_fence", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh", "l % 2));\n    }\n    __syncwarp();  // wgmma wants all lanes\n    ptx::fence_proxy_async();\n",
         "l % 2));\n    }\n    __syncwarp();\n")], "missing fence.proxy.async", more=True),
    Fault("hopper_two_tiles_store_rows_of_dq", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "shape.cuh", "task.tile + 1 == tiles.end", "task.tile + 2 >= tiles.end")], "FAILED",
          more=True),
    Fault("hopper_sums_staged_over_those_on_their_way", ANY_ORDER_UNIT, ANY_ORDER, [
        (SM90_BACKWARD + "consumer.cuh", "    if (lane() == 0) ptx::tma_store_wait_read<0>();\n", "")],
          "write to an operand in use"),
    Fault("hopper_dk_staged_over_k_in_use", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh",
         "    ptx::named_barrier_sync(kAllConsumersBarrier, kConsumers * kWarpgroupThreads);"
         "  // done with K\n", "")], "race"),
    Fault("hopper_rows_stored_before_all_are_staged", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh",
         "    ptx::named_barrier_sync(kConsumerBarrier + static_cast<int>(group), kWarpgroupThreads);\n",
         "")], "race", more=True),
    Fault("hopper_left_before_rows_are_read", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer.cuh",
         "    if (ptx::thread_index() % kWarpThreads == 0) ptx::tma_store_wait_read<0>();\n", "")],
          "left before bulk stores had read", more=True),
    Fault("hopper_one_key_too_few_in_the_window", HOPPER_UNIT, HOPPER_WINDOW, [
        (SM90_BACKWARD + "consumer.cuh", "row - limits.low + 1 - first", "row - limits.low - first")],
          "check    FAILED", more=True),
    Fault("hopper_rows_read_before_all_have_written", HOPPER_ROWS_UNIT, ANY_ORDER, [
        (SM90_BACKWARD + "rows.cuh",
         "  __syncthreads();\n  uint16_t* const to = dq_rows(p, entry, block.head);\n",
         "  uint16_t* const to = dq_rows(p, entry, block.head);\n")], "race", more=True),
    Fault("split_backward_sums_sent_over_tiles_in_use", HOPPER_SPLIT_UNIT, HOPPER_SPLIT, [
        (HOPPER_SPLIT_FOLDER + "exchange.cuh", "    wait_for_all();\n", "")], "race"),
    Fault("split_backward_sums_not_awaited", HOPPER_SPLIT_UNIT, HOPPER_SPLIT, [
        (HOPPER_SPLIT_FOLDER + "exchange.cuh", "    ptx::mbarrier_wait_cluster(received(), 0);\n", "")], "race"),
    Fault("split_backward_steps_of_another_block", HOPPER_SPLIT_UNIT, HOPPER_SPLIT, [
        (SM90_BACKWARD + "shape.cuh", "of.range.end - 1 - of.rank", "of.range.end - 1")], "race",
          more=True),
    Fault("split_backward_block_in_the_address_of_operands", HOPPER_SPLIT_UNIT, HOPPER_SPLIT, [
        (HOPPER_SPLIT_FOLDER + "shape.cuh", "kOperandBits = 0x3ffff;", "kOperandBits = ~0U;")], "race",
          commit="40705b3"),
    Fault("split_backward_barriers_used_before_they_are_there", HOPPER_SPLIT_UNIT, HOPPER_SPLIT, [
        (HOPPER_SPLIT_FOLDER + "kernel.cuh", "  ptx::cluster_wait();\n", "")],
          "before the block's start", more=True),
    Fault("wide_backward_weights_not_awaited", HOPPER_WIDE_UNIT, HOPPER_WIDE, [
        (HOPPER_WIDE_FOLDER + "keys.cuh",
         "    wait(offsetof(KeysShared, p_full) + 8 * stage, parity_of(number));\n", "")], "race"),
    Fault("wide_backward_weights_stored_over_those_before", HOPPER_WIDE_UNIT, HOPPER_WIDE, [
        (HOPPER_WIDE_FOLDER + "keys.cuh",
         "    wait(offsetof(KeysShared, p_empty) + 8 * stage, parity_of(number) ^ 1);\n", "")],
          "out of phase", more=True),
    Fault("wide_backward_sums_stored_over_a_tile_in_use", HOPPER_WIDE_UNIT, HOPPER_WIDE, [
        (HOPPER_WIDE_FOLDER + "products.cuh",
         "  ptx::named_barrier_sync(own_barrier, kWarpgroupThreads);  // all warps are done with the tile\n", "")],
          "operand in use"),
    Fault("wide_backward_v_released_before_dp", HOPPER_WIDE_UNIT, HOPPER_WIDE, [
        (HOPPER_WIDE_FOLDER + "queries.cuh", "      ptx::warpgroup_wait<0>();\n      ptx::warpgroup_pin(dp);\n"
         "      release(shared + offsetof(QueriesShared, v_empty));\n",
         "      release(shared + offsetof(QueriesShared, v_empty));\n"
         "      ptx::warpgroup_wait<0>();\n      ptx::warpgroup_pin(dp);\n")], "operand in use", more=True),
    Fault("decode_tile_not_awaited", DECODE_UNIT, DECODE, [
        (SM80_DECODE + "kernel.cuh", "    ptx::cp_async_wait<kConfig.stages - 1>();\n", "")],
          "read of bytes in flight"),
    Fault("decode_warp_does_not_meet_before_a_tile", DECODE_UNIT, DECODE, [
        (SM80_DECODE + "kernel.cuh", "    ring.meet();\n    math.process_tile(", "    math.process_tile(")],
          "read of bytes in flight", more=True),
    Fault("decode_stage_loaded_while_it_is_read", DECODE_UNIT, DECODE, [
        (SM80_DECODE + "kernel.cuh", "    ring.meet();  // the stage has been read\n", "")], "race"),
    Fault("decode_q_not_awaited", DECODE_UNIT, DECODE, [
        (SM80_DECODE + "kernel.cuh", "  __syncthreads();  // Q is there\n", "")], "race", more=True),
    Fault("decode_outputs_left_over_tiles_in_use", DECODE_UNIT, DECODE, [
        (SM80_DECODE + "kernel.cuh", "    __syncthreads();  // all rings have been read\n", "")],
          "race", more=True),
    Fault("decode_next_unit_over_outputs", DECODE_UNIT, DECODE_MANY, [
        (SM80_DECODE + "kernel.cuh", "    __syncthreads();  // the next unit's copies go there\n", "")],
          "race", more=True),
    Fault("decode_scales_of_another_stage", DECODE_FP8_UNIT, DECODE_FP8, [
        (SM80_DECODE + "keys.cuh", "scales + 2 * stage * kTileKeys", "scales")], "FAILED", more=True),
    Fault("decode_warps_of_a_ring_do_not_meet", DECODE_WIDE_UNIT, DECODE_WIDE, [
        (SM80_DECODE + "keys.cuh", "ptx::named_barrier_sync(2, kThreads);", "__syncwarp();")], "race"),
    Fault("decode_mask_left_out_of_tiles_that_all_rows_see", DECODE_PAIRS_UNIT, DECODE_MASK, [
        (SM80_DECODE + "attend.cuh", "      if (pairs.removes_any()) return true;\n", "")], "FAILED"),
    Fault("decode_page_index_not_clamped", DECODE_UNIT, DECODE_TABLE, [
        ("cuda/attention/kv_cache.hpp", "  const int lead = clamped(stored, 0, c.num_pages - 1);\n",
         "  const int lead = stored;\n")], "outside of global memory", more=True),
    Fault("decode_last_keys_of_a_part_seen_twice", DECODE_UNIT, DECODE_MANY, [
        (SM80_DECODE + "attend.cuh", "    seen.end = min(seen.end, unit.end - key);\n", "")],
          None, why="a part ends between two tiles, or with the entry's last key, where the band ends", more=True),
    Fault("decode_parts_joined_without_their_weights", "split_kv/combine.cu", DECODE, [
        ("cuda/attention/decode/join.cuh", "joined.sum += own.y * weight;", "joined.sum += own.y;")], "FAILED"),
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
        (FP8_SM90 + "exact_rows.cuh", "kv_head, 0) + column_of_key(key)", "kv_head, 0) + key")], "FAILED"),
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
        (FP8_ADA + "exact_rows.cuh", "  __syncwarp();                            // other lanes have stored what they had\n",
         "")], "race", more=True),
    Fault("fp8_ada_scores_not_capped", FP8_ADA_UNIT,
          problem("forward_fp8_sm89", "--dtype f8e4m3 --shape 1,1,70,64 --seqlen-kv 300 --softcap 0.5"), [
        (FP8_ADA + "attend.cuh", "  if (work.cap.cap_log2 > 0) cap_scores<S>(s, work.cap);\n", "")], "FAILED", more=True),
    Fault("converted_powers_left_out", CONVERTED_UNIT, CONVERTED_RANDOM, [
        (CONVERTED, "return scale * lift * power.up[0] * power.up[1];", "return scale * lift;")], "FAILED"),
    Fault("converted_scales_of_the_first_entry", CONVERTED_UNIT, CONVERTED_RANDOM, [
        (CONVERTED, "return {entry, place.head, row};", "return {0, place.head, row};")], "FAILED", more=True),
    Fault("v_rows_in_the_order_of_columns", V_ROWS_UNIT, V_ROWS_RANDOM, [
        (V_ROWS, "kChunk * group + tile::fp8_key_of_slot(slot);", "kChunk * group + slot;")], "FAILED"),
    Fault("v_rows_of_a_tile_not_awaited", V_ROWS_UNIT, V_ROWS_RANDOM, [
        (V_ROWS, "  __syncthreads();\n", "")], "race", more=True),
    Fault("paged_values_of_the_next_tile", PAGED_UNIT, PAGED, [
        (THROUGHPUT + "page_copies.cuh", "behind ? older_ : newest_", "newest_")], "FAILED"),
    Fault("paged_rows_of_the_first_box", PAGED_UNIT, PAGED_BOXES, [
        (THROUGHPUT + "page_copies.cuh", "const int row = __shfl_sync(0xffffffffU, own_row, i);",
         "const int row = __shfl_sync(0xffffffffU, own_row, 0);")], "FAILED"),
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
    Fault("stream_tile_not_awaited", STREAM_UNIT, STREAM, [
        (SM90_DECODE + "kernel.cuh", "      ptx::mbarrier_wait_together(stages.barrier(stage), parity);\n", "")],
          "race"),
    Fault("stream_stage_loaded_while_it_is_read", STREAM_UNIT, STREAM_ROWS, [
        (SM90_DECODE + "kernel.cuh", "      __syncwarp();  // the stage has been read\n", "")], "race"),
    Fault("stream_box_loaded_while_it_is_read", STREAM_UNIT, STREAM, [
        (SM90_DECODE + "kernel.cuh", "      __syncwarp();  // the stage has been read\n", "")], "race", more=True),
    Fault("stream_ends_not_passed", STREAM_UNIT, STREAM_MANY, [
        (SM90_DECODE + "walk.cuh", "    to.at += granules + p_.item_end - to.granule;\n", "")], "outside of global memory"),
    Fault("stream_unit_not_awaited", STREAM_UNIT, STREAM_MANY, [
        (SM90_DECODE + "kernel.cuh", "    __syncthreads();  // unit n is found, and the outputs before have been read\n", "")],
          "read of unwritten shared memory"),
    Fault("stream_line_not_awaited", STREAM_UNIT, STREAM_CROWD, [
        (SM90_DECODE + "walk.cuh", "list.first[0] = 0;\n  __syncthreads();", "list.first[0] = 0;")],
          "race", more=True),
    Fault("stream_join_does_not_wait", "stream_kv/join.cu", STREAM, [
        (SM90_DECODE + "join.cuh", "  ptx::wait_for_earlier_grids();\n", "")], "race"),
    Fault("stream_pages_not_aligned", STREAM_UNIT, STREAM_WINDOW, [
        (SM90_DECODE + "ring.cuh", " - (row & (p.key_alignment - 1))", "")], "FAILED"),
    Fault("stream_keys_before_the_unit_seen", STREAM_UNIT, STREAM_WINDOW, [
        (SM90_DECODE + "attend.cuh", "return key < unit.open_begin || ", "return "),
        (SM90_DECODE + "attend.cuh", "    seen.begin = max(seen.begin, unit.begin - key);\n", "")], "FAILED", more=True),
    Fault("stream_parts_in_one_place", STREAM_UNIT, STREAM, [
        (SM90_DECODE + "schedule.hpp", "granule == 0 ? 2 * share + 1 : 2 * share", "2 * share")], "FAILED", more=True),
    Fault("latent_slot_not_awaited", LATENT_UNIT, LATENT, [
        (MLA + "scores.cuh", "    ptx::mbarrier_wait_together(block_.full(ring_.slot), ring_.parity);\n"
         "    ptx::warpgroup_pin(s);", "    ptx::warpgroup_pin(s);")], "race"),
    Fault("latent_probabilities_not_awaited", LATENT_UNIT, LATENT, [
        (MLA + "values.cuh", "      ptx::mbarrier_wait_together(block_.ready(ring_.slot), ring_.parity);\n"
         "      ptx::mbarrier_wait_together(block_.go", "      ptx::mbarrier_wait_together(block_.go")], "race"),
    Fault("latent_keys_overwritten_while_others_read", LATENT_UNIT, LATENT, [
        (MLA + "scores.cuh", "      meet();  // all warps' products with the slot's keys have ended\n", "")], "race"),
    Fault("latent_probabilities_not_fenced", LATENT_UNIT, LATENT, [
        (MLA + "scores.cuh", "      ptx::fence_proxy_async();\n      hand_over();", "      hand_over();")],
          "missing fence.proxy.async", more=True),
    Fault("latent_rows_behind_the_last_key_kept", LATENT_UNIT, LATENT_TAILS, [
        (MLA + "scores.cuh", "      clear_rows(begin - key, end - key);\n", "")], "FAILED"),
    Fault("latent_slot_loaded_while_it_is_read", LATENT_UNIT, LATENT, [
        (MLA + "values.cuh", "      ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity);\n", "")], "race"),
    Fault("latent_last_factors_left_too_early", LATENT_UNIT, LATENT, [
        (MLA + "scores.cuh", "    ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity ^ 1);\n", "")],
          "arrival out of phase", more=True),
]

FAULTS = OURS + INJECTED
