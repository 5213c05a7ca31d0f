// Copies of Q, K and V to shared memory. Each warp initialises some of the
// barriers and starts some of the copies, so that these do not queue behind each
// other: a thread that starts a copy is held until the copy engine accepts it.
//
//   at once              warp 0: Q    1, 2: the first K of each warpgroup    5, 6: maps of K, V
//   block barrier        3, 4: the second K of each warpgroup
//   S of the first K     2, 3: V of the first warpgroup    6, 7: V of the second
//
// All SMs load at the same time: a copy that starts early would delay data that is needed sooner.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/maps.hpp"
#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/forward_sm90/latency/shape.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::latency {

template <class S>
struct Copies {
  static constexpr int kWarps = kThreads / 32;
  static_assert(kTiles == kWarps + 1);

  typename S::Shared& smem;
  const Maps& maps;
  const Task& task;
  const int rank, warp;  // of the block

  __device__ __forceinline__ static void prefetch_maps(const Maps& maps, int warp) {
    if (S::kConfig.blocks > 1) return;
    if (warp == 5) ptx::prefetch_tensor_map(&maps.k);
    if (warp == 6) ptx::prefetch_tensor_map(&maps.v);
  }

  // Initialises the barriers of tile `warp`, of the last tile (one warp) and of messages to warps. If blocks
  // start together, the warps that start the first copies initialise no other barriers. Called by one lane.
  __device__ __forceinline__ static void make_barriers(typename S::Shared& smem, int warp) {
    constexpr int kFirst = S::kTileBounds != TileBounds::checked ? 3 : 0;
    constexpr int kBytes = S::MergeMemory::kOutputBytes;
    constexpr int kRowBytes = S::MergeMemory::kRowBytes;
    const uint32_t received = ptx::shared_address(&smem.received[0][0]) + 8 * warp;
    ptx::mbarrier_init(ptx::shared_address(&smem.full[0]) + 8 * warp, 1);
    if (warp < kFirst) {
      ptx::publish_barriers();
      return;
    }
    const bool two = warp >= kWarps - kFirst;  // also for a warp that initialises none
    if (S::kRanks > 1) {
      ptx::mbarrier_init(received, 1);
      if (two) ptx::mbarrier_init(received - 8 * (kWarps - kFirst), 1);
    }
    const bool rows = S::kRanks > 1 && (warp == 3 || warp == 4);
    const uint32_t rows_received = ptx::shared_address(&smem.rows_received[0]) + 8 * (warp - 3);
    if (rows) ptx::mbarrier_init(rows_received, 1);
    if (warp == kWarps - 1) ptx::mbarrier_init(ptx::shared_address(&smem.full[kWarps]), 1);
    ptx::publish_barriers();
    if (S::kRanks > 1) {
      ptx::mbarrier_arrive_expect(received, kBytes);
      if (rows) ptx::mbarrier_arrive_expect(rows_received, kRowBytes);
      if (two) ptx::mbarrier_arrive_expect(received - 8 * (kWarps - kFirst), kBytes);
    }
  }

  // Starts the copy of a tile, if the task has that tile. Called by one lane.
  __device__ __forceinline__ void start(int tile, const CUtensorMap& map, int row, int head) const {
    const uint32_t barrier = ptx::shared_address(&smem.full[0]) + 8 * tile;
    const uint32_t to = ptx::shared_address(&smem.tiles[0][0]) + tile * S::Tile::kBytes;
    ptx::mbarrier_arrive_expect(barrier, S::Tile::kBytes);
#pragma unroll
    for (int panel = 0; panel < S::Tile::kPanels; ++panel) {
      ptx::tma_load_4d(to + panel * S::Tile::kPanelBytes, &map, barrier,
                       panel * S::Tile::kPanelColumns, row, head, task.map_batch);
    }
  }
  __device__ __forceinline__ int count(int group) const {
    return tiles_of(task.tiles.size(), S::part_of(rank, group), S::kParts);
  }
  // The order of the two tiles of a part, 0, 1 or 1, 0: neighbouring
  // blocks of a head, which run at the same time, request different tiles.
  __device__ __forceinline__ int flip(int group) const {
    return S::kTileBounds != TileBounds::checked && count(group) == kSlots
               ? task.first_query / kBlockQ % 2
               : 0;
  }
  // Starts the copy of a warpgroup's tile number i, if there is one.
  __device__ __forceinline__ void start_kv(int tile, const CUtensorMap& map, int group,
                                           int i) const {
    if (i >= count(group)) return;
    start(
        tile, map,
        task.kv_row +
            (task.tiles.begin + S::part_of(rank, group) + (i ^ flip(group)) * S::kParts) * kBlockKv,
        task.kv_head);
  }

  // Starts the copies of the first round, in their order. Called by one lane of each warp.
  __device__ __forceinline__ void start_first() const {
    // Only if the block waits for it: a block must not exit before its copies have arrived.
    if (warp == 0 && count(0) > 0) start(kQTile, maps.q, task.q_row + task.first_query, task.head);
    if (warp == 1 || warp == 2) start_kv(warp, maps.k, warp - 1, 0);
  }
  __device__ __forceinline__ void start_second() const {
    if (S::kConfig.blocks > 1 && warp == 5) ptx::prefetch_tensor_map(&maps.v);
    if (warp == 3 || warp == 4) start_kv(warp, maps.k, warp - 3, 1);
  }
  // If the warpgroup has keys, starts its copies of V.
  __device__ __forceinline__ void start_values(int group) const {
    const int slot = 3 - warp % kGroupWarps;
    if (slot < kSlots) start_kv(v_tile(group, slot), maps.v, group, slot);
  }

  // Starts the copies of a warpgroup's tile number `i`, after the slot has been read. One lane.
  __device__ __forceinline__ void start_next(int group, int i) const {
    start_kv(k_tile(group, i % kSlots), maps.k, group, i);
    start_kv(v_tile(group, i % kSlots), maps.v, group, i);
  }
};

static_assert(k_tile(0, 0) == 1 && k_tile(1, 0) == 2 && k_tile(0, 1) == 3 && k_tile(1, 1) == 4);

}  // namespace flashcore::cuda::forward_sm90::latency
