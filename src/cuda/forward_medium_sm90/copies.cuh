// How Q, K and V come to the shared memory of a block that shares keys.
//
//   at once        warp 0, 1: Q of each warpgroup    2, 3: the first and second K
//   all have met   4, 6: even and odd V              5, 7: further even and odd K
//
// The last warp to have read a slot starts the copy of its next tile.
#pragma once

#include <cstdint>

#include "cuda/forward_medium_sm90/shape.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Maps, forward_small_sm90::Task;

template <class S>
struct Copies {
  typename S::Shared& smem;
  const Maps& maps;
  const Task& task;
  const int rank, warp;  // of the block
  const int count;       // tiles of the block

  __device__ __forceinline__ int tile_at(int i) const {
    return task.tiles.begin + rank + i * kRanks;
  }

  // Warps that start the first copies make the barriers of those and no other. One lane of each.
  __device__ __forceinline__ static void make_barriers(typename S::Shared& smem, int warp) {
    constexpr int kFirst = 4, kOthers = kWarps - kFirst;
    const uint32_t full = ptx::shared_address(&smem.full[0]);
    if (warp < kFirst) {
      ptx::mbarrier_init(full + 8 * warp, 1);
      ptx::publish_barriers();
      return;
    }
#pragma unroll
    for (int i = kFirst; i < kTiles; i += kOthers) {
      const int tile = i + warp - kFirst;
      if (tile < kTiles) ptx::mbarrier_init(full + 8 * tile, 1);
    }
    smem.readers[warp - kFirst] = 0;
    if (warp < kSlots) smem.readers[warp] = 0;
    const uint32_t received = ptx::shared_address(&smem.received[0]) + 8 * (warp - kFirst);
    const uint32_t lse = ptx::shared_address(&smem.lse_received[0]) + 8 * (warp - kFirst);
    const bool has_lse = warp - kFirst < kGroups;
    ptx::mbarrier_init(received, 1);
    ptx::mbarrier_init(received + 8 * kOthers, 1);
    if (has_lse) ptx::mbarrier_init(lse, 1);
    ptx::publish_barriers();
    ptx::mbarrier_arrive_expect(received, sizeof(S::Message::outputs));
    ptx::mbarrier_arrive_expect(received + 8 * kOthers, sizeof(S::Message::outputs));
    if (has_lse) ptx::mbarrier_arrive_expect(lse, kGroupWarps * sizeof(S::Message::lse));
  }

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
  __device__ __forceinline__ void start_k(int i) const {
    if (i >= count) return;
    start(S::k_tile(i % kSlots), maps.k, task.kv_row + tile_at(i) * kBlockKv, task.kv_head);
  }
  __device__ __forceinline__ void start_v(int i) const {
    if (i >= count) return;
    start(S::v_tile(i % kSlots), maps.v, task.kv_row + tile_at(i) * kBlockKv, task.kv_head);
  }

  // waited: whether each warpgroup has keys; a block may not leave before its copies have come.
  __device__ __forceinline__ void start_first(bool waited0, bool waited1) const {
    if (warp == 0 && waited0) start(S::q_tile(0), maps.q, task.q_row + task.first_query, task.head);
    if (warp == 1 && waited1) {
      start(S::q_tile(1), maps.q, task.q_row + task.first_query + kGroupQ, task.head);
    }
    if (warp == 2 || warp == 3) start_k(warp - 2);
  }
  __device__ __forceinline__ void start_second() const {
    if (warp < kGroupWarps) return;
    const int odd = warp / 2 % 2;
    if (warp % 2 == 0) {
      for (int i = odd; i < kSlots; i += 2) start_v(i);
    } else {
      for (int i = 2 + odd; i < kSlots; i += 2) start_k(i);
    }
  }

  // This warp has read tile i for the last time.
  __device__ __forceinline__ void release(int i, int lane) const {
    if (i + kSlots >= count) return;
    if (lane == 0) {
      const int slot = i % kSlots;
      uint32_t before;
      asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "r"(ptx::shared_address(&smem.readers[0]) + 4 * slot)
                   : "memory");
      if (before % kWarps == kWarps - 1) {
        start_k(i + kSlots);
        start_v(i + kSlots);
      }
    }
    __syncwarp();
  }
};

}  // namespace flashcore::cuda::forward_medium_sm90
