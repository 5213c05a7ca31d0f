"""Faults of the backward pass."""
from fault import Fault, problem

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
# A mask's bits, a step ahead of the consumers; dropout's words, which four lanes share.
HOPPER_MASKED = ["run", "--backward", "--gradients", "dq,dk,dv",
                 *problem("backward_sm90:options", "--dtype bf16 --shape 1,2,300,128 --with mask")[1:]]
HOPPER_DROPPED = ["run", "--backward",
                  *problem("backward_sm90:options", "--dtype bf16 --shape 1,1,200,128 --dropout 0.3")[1:]]
HOPPER_SLOPED = ["run", "--backward", "--gradients", "dq,dk,dv",
                 *problem("backward_sm90:options", "--dtype bf16 --shape 1,2,200,128 --with alibi_slopes")[1:]]
HOPPER_SLOPES = ["run", "--backward",
                 *problem("backward_sm90:options", "--dtype bf16 --shape 1,2,200,128 --with alibi_slopes")[1:]]
# More tiles of dBias than blocks.
HOPPER_BIAS = ["run", "--backward",
               *problem("backward_sm90:options", "--dtype bf16 --shape 2,2,300,128 --with bias")[1:]]
HOPPER_BIAS_UNIT = "backward_sm90/throughput/bf16_config2_d_bias.cu"
HOPPER_PAIRS_UNIT = "backward_sm90/throughput/bf16_config2_pairs.cu"
HOPPER_PAIR_ROWS_UNIT = "backward_sm90/throughput/pair_rows.cu"
HOPPER_WIDE = ["run", "--backward", *problem("backward_sm90:wide", "--dtype bf16 --shape 1,1,250,256 --causal")[1:]]
HOPPER_WIDE_UNIT = "backward_sm90/wide/wide_bf16.cu"
HOPPER_WIDE_FOLDER = "cuda/backward_sm90/wide/"

FAULTS = [
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
        (SM90_BACKWARD + "consumer_rows.cuh",
         "  ptx::named_barrier_sync(kAllConsumersBarrier, kConsumers * kWarpgroupThreads);"
         "  // done with K\n", "")], "race"),
    Fault("hopper_rows_stored_before_all_are_staged", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer_rows.cuh",
         "  ptx::named_barrier_sync(kConsumerBarrier + static_cast<int>(group), kWarpgroupThreads);\n",
         "")], "race", more=True),
    Fault("hopper_left_before_rows_are_read", HOPPER_UNIT, HOPPER, [
        (SM90_BACKWARD + "consumer_rows.cuh",
         "  if (ptx::thread_index() % kWarpThreads == 0) ptx::tma_store_wait_read<0>();\n", "")],
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
    Fault("pairs_bits_not_awaited", HOPPER_PAIRS_UNIT, HOPPER_MASKED, [
        (SM90_BACKWARD + "pairs.cuh", "  if (pairs.has_slot()) c.wait(S::kPairFull, number % 2);\n", "")], "race"),
    Fault("pairs_bits_copied_over_those_in_use", HOPPER_PAIRS_UNIT, HOPPER_MASKED, [
        (SM90_BACKWARD + "pair_loader.cuh",
         "        ptx::mbarrier_wait(shared + S::kPairEmpty, (number - 1) % 2);\n", "")], "race"),
    Fault("pairs_bits_free_after_one_consumer", HOPPER_PAIRS_UNIT, HOPPER_MASKED, [
        (SM90_BACKWARD + "kernel.cuh", "S::kPairEmpty, kConsumers * kWarpgroupThreads)",
         "S::kPairEmpty, kWarpgroupThreads)")], "arrival out of phase", more=True),
    Fault("pairs_bit_of_another_query", HOPPER_PAIRS_UNIT, HOPPER_MASKED, [
        (SM90_BACKWARD + "pairs.cuh", "bits << (7 - first), odd = bits << (6 - first)",
         "bits << (6 - first), odd = bits << (7 - first)")], "check    FAILED"),
    Fault("pairs_mask_packed_in_the_order_of_lanes", HOPPER_PAIR_ROWS_UNIT, HOPPER_MASKED, [
        ("cuda/attention/mask_bits.cuh", "(bits >> (4 * i + k) & 1U) << (first + i)",
         "(bits >> (4 * i + k) & 1U) << (first + 7 - i)")], "check    FAILED", more=True),
    Fault("pairs_word_of_another_lane", HOPPER_PAIRS_UNIT, HOPPER_DROPPED, [
        (SM90_BACKWARD + "pairs.cuh", "drawn_by(c, word, 2 * slot), high = drawn_by(c, word, 2 * slot + 1)",
         "drawn_by(c, word, 2 * slot + 1), high = drawn_by(c, word, 2 * slot)")], "check    FAILED"),
    Fault("pairs_dropped_weights_lost_for_ds", HOPPER_PAIRS_UNIT, HOPPER_DROPPED, [
        (SM90_BACKWARD + "pairs.cuh", "const float2 weight = Element::unpack(c.sloped[n / 2][n % 2 * 2 + slot]);",
         "const float2 weight = Element::unpack(pair);")], "check    FAILED", more=True),
    Fault("pairs_distance_of_the_other_key", HOPPER_PAIRS_UNIT, HOPPER_SLOPED, [
        (SM90_BACKWARD + "pair_terms.cuh", "tile.offset - (lane_key(c) + 8 * slot)",
         "tile.offset - lane_key(c)")], "check    FAILED", more=True),
    Fault("pairs_distances_with_their_signs", HOPPER_PAIRS_UNIT, HOPPER_SLOPES, [
        (SM90_BACKWARD + "pairs.cuh", "fabsf(distance + static_cast<float>(8 * n + e)), sum)",
         "distance + static_cast<float>(8 * n + e), sum)")], "check    FAILED"),
    Fault("d_bias_tile_of_the_bias_not_awaited", HOPPER_BIAS_UNIT, HOPPER_BIAS, [
        (SM90_BACKWARD + "bias/consumer.cuh",
         "    if (step.is_first != 0) ptx::mbarrier_wait_together(shared + S::kBiasFull, parity);\n", "")], "race"),
    Fault("d_bias_tile_of_the_bias_copied_over_one_in_use", HOPPER_BIAS_UNIT, HOPPER_BIAS, [
        (SM90_BACKWARD + "bias/producer.cuh", "        ptx::mbarrier_wait(shared + S::kBiasEmpty, parity);\n", "")],
          "arrival out of phase"),
    Fault("d_bias_tiles_released_before_their_product", HOPPER_BIAS_UNIT, HOPPER_BIAS, [
        (SM90_BACKWARD + "bias/consumer.cuh",
         "    ptx::warpgroup_wait<1>();\n    ptx::warpgroup_pin(a);\n    release(of_q);\n",
         "    release(of_q);\n    ptx::warpgroup_wait<1>();\n    ptx::warpgroup_pin(a);\n")], "operand in use", more=True),
    Fault("d_bias_statistics_of_too_few_steps", HOPPER_BIAS_UNIT, HOPPER_BIAS, [
        (SM90_BACKWARD + "bias/shape.cuh", "kKept = kSlots / 2 + 1;", "kKept = kSlots / 2;")], "race"),
    Fault("d_bias_of_the_first_sequence_alone", HOPPER_BIAS_UNIT, HOPPER_BIAS, [
        (SM90_BACKWARD + "bias/walk.hpp", "batch >= (p.d_bias.sums(0) ? p.batch : item.batch + 1)",
         "batch >= item.batch + 1")], "check    FAILED", more=True),
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
]
