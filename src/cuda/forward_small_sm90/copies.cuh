// How Q, K and V come to shared memory: every warp makes some of the barriers and starts the copies
// that they count, so that neither waits for a long row of the other.
//
// A thread that starts a copy is held until the copy engine takes it; eight warps share that.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_small_sm90 {

template <class S>
struct Copies {
  static constexpr int kWarps = kThreads / 32, kLastTileWarp = 0;
  static_assert(kTiles == kWarps + 1 && !is_v(kLastTileWarp));

  typename S::Shared& smem;
  const Maps& maps;
  const Task& task;
  const int rank;

  // The barriers of tile `warp` and, after the last of the warps, tile 8, and that of what the warp
  // receives. One lane.
  __device__ __forceinline__ static void make_barriers(typename S::Shared& smem, int warp) {
    const uint32_t received = ptx::shared_address(&smem.received[0][0]) + 8 * warp;
    ptx::mbarrier_init(received, 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.full[0]) + 8 * warp, 1);
    if (warp == kLastTileWarp) ptx::mbarrier_init(ptx::shared_address(&smem.full[kWarps]), 1);
    ptx::publish_barriers();
    ptx::mbarrier_arrive_expect(received, kParts * S::kConfig.message_bytes());
  }

  // Starts the copy of a tile, if the task has it. One lane.
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
  __device__ __forceinline__ int key_row(int group, int i) const {
    return task.kv_row + (task.tiles.begin + part_of(rank, group) + i * kParts) * kBlockKv;
  }

  // The first copies of Q and K: tile `warp` is this warp's. One lane.
  __device__ __forceinline__ void start_keys(int warp) const {
    if (warp == kQTile) {
      // Only where somebody waits for it: a block may not leave before its copies have come.
      if (count(0) > 0) start(kQTile, maps.q, task.q_row + task.first_query, task.head);
    } else if (!is_v(warp)) {
      start_tile(warp, warp - k_tile(0, 0), maps.k);
    }
  }
  // Those of V. One lane.
  __device__ __forceinline__ void start_values(int warp) const {
    if (is_v(warp)) start_tile(warp, warp - v_tile(0, 0), maps.v);
    if (warp == kLastTileWarp) start_tile(kWarps, kWarps - v_tile(0, 0), maps.v);
  }
  // Number `number` of the block's first tiles of K or V, if the task has it.
  __device__ __forceinline__ void start_tile(int tile, int number, const CUtensorMap& map) const {
    const int group = static_cast<int>(static_cast<unsigned>(number) % kGroups);
    const int i = static_cast<int>(static_cast<unsigned>(number) / kGroups);
    if (i < count(group)) start(tile, map, key_row(group, i), task.kv_head);
  }
  __device__ __forceinline__ int count(int group) const {
    return tiles_of(task.tiles.size(), part_of(rank, group));
  }

  // Tile number `i` of a warpgroup, once that has read what was in the slot. One lane.
  __device__ __forceinline__ void start_next(int group, int i) const {
    const int slot = i % kSlots;
    start(k_tile(group, slot), maps.k, key_row(group, i), task.kv_head);
    start(v_tile(group, slot), maps.v, key_row(group, i), task.kv_head);
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
