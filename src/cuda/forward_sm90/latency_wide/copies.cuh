// Copies of Q, K and V to the shared memory of a cluster's two blocks.
//
//   a warp for each ring   K and V of each warpgroup. Each block requests all of the first K, which
//                          is needed first, for itself, as the other block need not run yet. Of
//                          all other tiles it requests one half, for both blocks
//   warp 0                 Q
//
// All SMs load at the same time: in the first round, a ring's
// next tile is requested when the one before it has arrived.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/forward_sm90/latency_wide/shape.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

template <class S>
struct Copies {
  typename S::Shared& smem;
  const Maps& maps;
  const Task& task;  // of the cluster
  const int rank;

  __device__ __forceinline__ int tile_at(int group, int i) const {
    return task.tiles.begin + group + i * kGroups;
  }
  __device__ __forceinline__ uint32_t full(int tile) const {
    return ptx::shared_address(&smem.full[0]) + 8 * tile;
  }
  __device__ __forceinline__ uint32_t empty(int ring, int slot) const {
    return ptx::shared_address(&smem.empty[0]) + 8 * (ring * kSlots + slot);
  }
  __device__ __forceinline__ uint32_t address_of(int tile) const {
    return ptx::shared_address(&smem.tiles[0][0]) + tile * S::Tile::kBytes;
  }

  // Called by one lane of the warp that copies a ring.
  __device__ __forceinline__ static void make_ring(typename S::Shared& smem, int ring) {
    const uint32_t full = ptx::shared_address(&smem.full[0]) + 8 * S::ring_tile(ring, 0);
    const uint32_t empty = ptx::shared_address(&smem.empty[0]) + 8 * ring * kSlots;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      ptx::mbarrier_init(full + 8 * slot, 1);
      ptx::mbarrier_init(empty + 8 * slot, kRanks * kGroupWarps);
    }
    ptx::publish_barriers();
  }
  // Called by one lane.
  __device__ __forceinline__ static void make_q(typename S::Shared& smem) {
    ptx::mbarrier_init(ptx::shared_address(&smem.full[0]) + 8 * S::kQTile, 1);
    for (int warp = 0; warp < kGroupWarps; ++warp) {
      ptx::mbarrier_init(ptx::shared_address(&smem.left[warp]), 32);
    }
    ptx::publish_barriers();
  }

  // Starts the copy of a whole tile for this block. Called by one lane.
  __device__ __forceinline__ void start(int tile, const CUtensorMap& map, int row, int head) const {
    ptx::mbarrier_arrive_expect(full(tile), S::Tile::kBytes);
#pragma unroll
    for (int panel = 0; panel < S::Tile::kPanels; ++panel) {
      ptx::tma_load_4d(address_of(tile) + panel * S::Tile::kPanelBytes, &map, full(tile),
                       panel * S::Tile::kPanelColumns, row, head, task.map_batch);
    }
  }
  __device__ __forceinline__ void start_q(int first_query) const {
    start(S::kQTile, maps.q, task.q_row + first_query, task.head);
  }
  __device__ __forceinline__ int row_of(int ring, int i) const {
    return task.kv_row + tile_at(ring / 2, i) * kBlockKv;
  }
  __device__ __forceinline__ void start_first_k(int ring) const {
    start(S::ring_tile(ring, 0), maps.k, row_of(ring, 0), task.kv_head);
  }
  // Starts the copy of this block's half of tile i of a ring, for both blocks.
  __device__ __forceinline__ void start_half(int ring, int i) const {
    static_assert(S::Tile::kPanels == kRanks);
    const int tile = S::ring_tile(ring, i % kSlots);
    ptx::mbarrier_arrive_expect(full(tile), S::Tile::kBytes);
    ptx::tma_load_4d_multicast(address_of(tile) + rank * S::Tile::kPanelBytes,
                               ring % 2 == 0 ? &maps.k : &maps.v, full(tile), (1 << kRanks) - 1,
                               rank * S::Tile::kPanelColumns, row_of(ring, i), task.kv_head,
                               task.map_batch);
  }
  // Copies tiles from `begin` on, once both blocks run. Called by one lane.
  __device__ __forceinline__ void run(int ring, int begin, int count) const {
#pragma unroll 1
    for (int i = begin; i < count; ++i) {
      if (i >= kSlots) {
        ptx::mbarrier_wait(empty(ring, i % kSlots), (i / kSlots + 1) % 2);
      } else if (i > 0) {
        ptx::mbarrier_wait(full(S::ring_tile(ring, i - 1)), 0);
      }
      start_half(ring, i);
    }
  }

  // This warp has read tile i of a ring. If another tile follows in the slot, notifies both blocks.
  __device__ __forceinline__ void release(int ring, int i, int count, int lane) const {
    if (i + kSlots >= count) return;
    if (lane < kRanks) {
      ptx::mbarrier_arrive_cluster(
          ptx::cluster_address(empty(ring, i % kSlots), static_cast<uint32_t>(lane)));
    }
    __syncwarp();
  }
};

}  // namespace flashcore::cuda::forward_sm90::latency_wide
