"""Faults of the forward pass on Hopper."""
from fault import Fault, problem

SM90 = "cuda/forward_sm90/"
THROUGHPUT, LATENCY, WIDE = SM90 + "throughput/", SM90 + "latency/", SM90 + "latency_wide/"
# Three consumers in turns, which see different numbers of blocks.
TALL = problem("forward_sm90_throughput:192x128", "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 600 --causal")
TALL_UNIT = "forward_sm90/throughput/bf16_config0.cu"
# Blocks that take one tile after another, by a counter.
TALL_MANY = problem("forward_sm90_throughput:192x128",
                    "--dtype bf16 --shape 1,3,400,64 --seqlen-kv 700 --causal")
# Scores so large that blocks are computed again.
TALL_AGAIN = problem("forward_sm90_throughput:192x128",
                     "--dtype bf16 --shape 1,1,192,64 --seqlen-kv 1600 --scale 10")
# Outputs go from registers.
WIDE_HEAD_UNIT = "forward_sm90/throughput/bf16_config6.cu"
# Blocks of 112 keys, whose first half has 64; and head dimensions that end in a panel.
ODD_UNIT = "forward_sm90/throughput/bf16_config10.cu"
ODD = problem("forward_sm90_throughput", "--dtype bf16 --shape 1,1,128,160 --seqlen-kv 300 --causal")
# A chunk of a prompt over pages: several boxes per tile, several tiles of keys.
PAGED = problem("forward_sm90_throughput:paged", "--dtype bf16 --shape 2,4,200,128 --heads-kv 2 --seqlen-kv 700 --paged 16 --causal")
# Several boxes per page.
PAGED_BOXES = problem("forward_sm90_throughput:paged",
                      "--dtype bf16 --shape 1,2,150,128 --heads-kv 1 --seqlen-kv 400 --paged 48 --causal")
# A panel per box.
PAGED_PANELS = problem("forward_sm90_throughput:paged",
                       "--dtype f16 --shape 1,2,150,96 --heads-kv 1 --seqlen-kv 400 --paged 24 --causal")
# Blocks that take one tile after another, by a counter.
PAGED_MANY = problem("forward_sm90_throughput:paged",
                     "--dtype bf16 --shape 1,8,400,128 --heads-kv 2 --seqlen-kv 700 --paged 16 --causal")
PAGES, COPIES = THROUGHPUT + "page_copies.cuh", THROUGHPUT + "paged_producer.cuh"
PAGED_UNIT = "forward_sm90/throughput/bf16_config5_paged.cu"
# Options of pairs: several tiles of keys, and consumers that see different numbers of them.
OPTIONS = "forward_sm90_throughput:options"
MASK = problem(OPTIONS, "--dtype bf16 --shape 1,2,128,128 --seqlen-kv 400 --with mask")
ALIBI = problem(OPTIONS, "--dtype bf16 --shape 1,2,128,128 --seqlen-kv 600 --with alibi_slopes --causal")
OPTIONS_UNIT = "forward_sm90/throughput/bf16_options1.cu"
CLUSTER = problem("forward_sm90_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 512")
CLUSTER_UNIT = "small_bf16_config0_none.cu"
CLUSTER_LONG = problem("forward_sm90_latency", "--dtype bf16 --shape 1,1,64,64 --seqlen-kv 1536")
SHARED = problem("forward_sm90_latency:wide", "--dtype bf16 --shape 1,1,128,128 --seqlen-kv 1024")
SHARED_UNIT = "forward_sm90/latency/bf16_none.cu"
# Two blocks share one SM, and scores are far apart.
CLUSTER_FAR = problem("forward_sm90_latency",
                      "--dtype bf16 --shape 1,8,64,64 --seqlen-kv 1024 --scale 1")
CLUSTER_FAR_UNIT = "small_bf16_config1_none.cu"
C = THROUGHPUT + "consumer.cuh"
CO = THROUGHPUT + "consumer_options.cuh"
K = THROUGHPUT + "kernel.cuh"

FAULTS = [
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
    Fault("mask_of_the_next_word", OPTIONS_UNIT, MASK, [
        (THROUGHPUT + "options.cuh", "word[slot][n / 4] >> column", "word[slot][n / 8] >> column")],
          "FAILED"),
    Fault("alibi_of_a_row_left_out", OPTIONS_UNIT, ALIBI, [
        (CO, "alibi.distance + 8, alibi.base[1]", "alibi.distance, alibi.base[1]")], "FAILED"),
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
    Fault("throughput_box_four_columns_on", TALL_UNIT, TALL, [
        (THROUGHPUT + "producer.cuh", "panel * Tile::kPanelColumns,\n                     row,",
         "panel * Tile::kPanelColumns + 4,\n                     row,")], "misaligned copy", more=True),
    Fault("throughput_store_before_the_first_row", TALL_UNIT, TALL, [
        (THROUGHPUT + "epilogue.cuh", "task.q_row + c.first_row() + first,",
         "task.q_row + c.first_row() + first - 8,")], "store before the tensor"),
    Fault("paged_pages_of_the_block_before", PAGED_UNIT, PAGED, [
        (COPIES, "(task, pages, block - 2)", "(task, pages, block - 1)")], "FAILED"),
    Fault("paged_rows_of_the_first_box", PAGED_UNIT, PAGED_BOXES, [
        (PAGES, "next_group_ = (row - number * page_size) / kLeastBoxRows;", "next_group_ = 0;")], "FAILED"),
    Fault("paged_panels_of_the_first_page", "forward_sm90/throughput/plan.cpp", PAGED_PANELS, [
        (THROUGHPUT + "boxes.hpp", ".steps = {.page = 1, .head = 0}, .extent = 0",
         ".steps = {.page = 0, .head = 0}, .extent = 0")], "FAILED"),
    Fault("paged_zeros_where_queries_see_keys", PAGED_UNIT, PAGED, [
        (PAGES, "key >= pages.end_key ||", "key + 64 >= pages.end_key ||")], "FAILED"),
    Fault("paged_slot_taken_before_it_is_free", PAGED_UNIT, PAGED, [
        (COPIES, "      ptx::mbarrier_wait(ptx::shared_address(&ring.empty[at.slot()]), at.parity() ^ 1);\n",
         "")], "operand in use"),
    Fault("paged_task_found_before_values_took_the_last", PAGED_UNIT, PAGED_MANY, [
        (COPIES, "kPageWarps = 3", "kPageWarps = 1")], "deadlock"),
    Fault("throughput_odd_blocks_in_equal_halves", ODD_UNIT, ODD, [
        (C, "kHalfProducts = (S::kKeyProducts + 2) / 4 * 2;", "kHalfProducts = S::kKeyProducts / 2;")], "FAILED"),
    Fault("throughput_outputs_in_parts_that_begin_in_a_panel", ODD_UNIT, ODD, [
        (THROUGHPUT + "shape.cuh", "kOutParts = kConfig.head_dim_v > 192 ? 2 : 1;",
         "kOutParts = kConfig.head_dim_v > 128 ? 2 : 1;")], "FAILED"),
    Fault("throughput_copies_of_128_rows_for_112", "forward_sm90/throughput/plan.cpp", ODD, [
        (THROUGHPUT + "plan.cpp", "rows_kv, columns, config.block_kv, lead_kv);",
         "rows_kv, columns, 128, lead_kv);")], "race"),
]
