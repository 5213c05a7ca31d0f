"""Faults of the ladder's rungs."""
from fault import Fault, problem

LADDER = "cuda/ladder/"
RUNG_11 = problem("11_warp_specialized", "--shape 1,1,200,64 --seqlen-kv 550 --causal")
RUNG_12 = problem("12_mma_sync", "--shape 1,1,100,64 --seqlen-kv 200")
RUNG_15 = problem("15_wgmma_tma", "--shape 1,1,100,64 --seqlen-kv 600")

FAULTS = [

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
]
