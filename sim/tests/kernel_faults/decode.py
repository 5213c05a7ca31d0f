"""Faults of decode kernels."""
from fault import Fault, problem

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
STREAM_CROWD = problem("decode_sm90", "--dtype bf16 --shape 40,4,1,128 --heads-kv 2 --seqlen-kv 150 --with seqlens_kv")
# Sequences that are equally long.
STREAM_EQUAL = problem("decode_sm90", "--dtype bf16 --shape 40,4,1,128 --heads-kv 2 --seqlen-kv 150")
# Random problems whose tables have indices out of range.
STREAM_TABLE = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "decode_sm90", "--shapes", "none", "--paged",
                "--narrow", "--random", "20", "--random-seed", "375", "--largest-seqlen", "60", "--largest-head-dim", "128",
                "--most-heads", "4"]
SM90_DECODE = "cuda/decode_sm90/stream_kv/"
# Entries that are cut in two, tiles of 64 and of 6 heads, a last tile that is not full.
LATENT = problem("mla_sm90", "--dtype bf16 --shape 2,70,1,576 --heads-kv 1 --seqlen-kv 700 --head-dim-v 512 --v-in-k "
                 "--paged 16")
LATENT_UNIT = "latent/mla_bf16.cu"
# Random problems whose caches have NaN behind the last key.
LATENT_TAILS = ["verify", "--device", "sim", "--sim-seed", "5", "--kernel", "mla_sm90", "--shapes", "none", "--latent",
                "--paged", "--narrow", "--random", "8", "--random-seed", "0", "--largest-seqlen", "100"]
# A random problem with a tree mask, padding on the left and pages.
LATENT_TREES = [*LATENT_TAILS[:-5], "1", "--random-seed", "107", "--largest-seqlen", "60", "--most-heads", "20"]
# Rows of so many parts that slices join them.
LATENT_ONE = problem("mla_sm90", "--dtype bf16 --shape 1,8,1,576 --heads-kv 1 --seqlen-kv 700 --head-dim-v 512 "
                     "--v-in-k --paged 16")
MLA = "cuda/mla_sm90/latent/"

FAULTS = [
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
    Fault("stream_page_index_not_clamped", STREAM_UNIT, STREAM_TABLE, [
        (SM90_DECODE + "ring.cuh", "place_.lead = attention::clamped(stored, 0, p_.cache.num_pages - 1);",
         "place_.lead = stored;")], "outside of global memory", more=True),
    Fault("stream_equal_sequences_cost_an_item", STREAM_UNIT, STREAM_EQUAL, [
        (SM90_DECODE + "walk.cuh", "p_.equal ? entry * p_.entry_cost", "p_.equal ? entry * p_.entry_cost / p_.heads_kv")],
          "FAILED", more=True),
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
        (MLA + "scores.cuh", "      if (masked) clear(seen_keys(unit, key), begin - key, end - key);\n", "")],
          "FAILED"),
    Fault("latent_keys_before_the_first_bit_hidden", LATENT_UNIT, LATENT_TREES, [
        (MLA + "units.cuh", "unit.tree = seen.at.entry.offset + seen.shift", "unit.tree = seen.at.entry.offset")],
          "FAILED"),
    Fault("latent_boxes_across_pages", LATENT_UNIT, LATENT_TREES, [
        (MLA + "units.cuh", "p.cache.pages == nullptr ? 0 : entry.kv_row % kGroupRows", "0")], "FAILED", more=True),
    Fault("latent_slices_not_awaited", "latent/join4.cu", LATENT_ONE, [
        (MLA + "join.cuh", "others[slice - 1][thread] = joined;\n    __syncthreads();\n",
         "others[slice - 1][thread] = joined;\n")], "race"),
    Fault("latent_slot_loaded_while_it_is_read", LATENT_UNIT, LATENT, [
        (MLA + "values.cuh", "      ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity);\n", "")], "race"),
    Fault("latent_last_factors_left_too_early", LATENT_UNIT, LATENT, [
        (MLA + "scores.cuh", "    ptx::mbarrier_wait_together(block_.empty(ring_.slot), ring_.parity ^ 1);\n", "")],
          "arrival out of phase", more=True),
]
