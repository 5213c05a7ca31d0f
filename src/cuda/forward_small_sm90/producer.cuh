// The warp that copies: Q and all of K that fits, then V, then what reuses slots.
//
// It is a warp of its own because the thread that issues a copy is held until the copy engine takes
// it. Barriers are made by one lane in a straight line; a lane each would take longer.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_small_sm90 {

template <class S>
struct Producer {
  typename S::Shared& smem;
  const Maps& maps;
  const Task& task;
  int rank;
  bool early;
  int tiles[kGroups];  // of each warpgroup; never fewer of the first

  __device__ __forceinline__ Producer(typename S::Shared& shared, const Maps& all, const Task& what,
                                      int block, bool is_early)
      : smem(shared), maps(all), task(what), rank(block), early(is_early) {
    for (int g = 0; g < kGroups; ++g) tiles[g] = tiles_of(task.tiles.size(), part_of(rank, g));
  }

  // All panels of a tile whose first row is `row`.
  template <class Tile>
  __device__ __forceinline__ void load(const unsigned char* to, const CUtensorMap& map,
                                       const uint64_t& full, int row, int head) {
    const uint32_t barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      ptx::tma_load_4d(ptx::shared_address(to) + panel * Tile::kPanelBytes, &map, barrier,
                       panel * Tile::kPanelColumns, row, head, task.batch);
    }
  }
  __device__ __forceinline__ int key_row(int group, int i) const {
    return task.kv_row + (task.tiles.begin + part_of(rank, group) + i * kParts) * kBlockKv;
  }
  __device__ __forceinline__ void load_k(int group, int i, int slot) {
    load<typename S::KvTile>(smem.k[group][slot], maps.k, smem.k_full[group][slot],
                             key_row(group, i), task.kv_head);
  }
  __device__ __forceinline__ void load_v(int group, int i, int slot) {
    load<typename S::KvTile>(smem.v[group][slot], maps.v, smem.v_full[group][slot],
                             key_row(group, i), task.kv_head);
  }

  // Barriers of the slots in use, then Q and the first round of K. One lane.
  __device__ __forceinline__ void begin() {
    ptx::mbarrier_init(ptx::shared_address(&smem.q_full), 1);
#pragma unroll
    for (int slot = 0; slot < S::kSlots; ++slot) {
      if (slot >= tiles[0]) break;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        ptx::mbarrier_init(ptx::shared_address(&smem.k_full[g][slot]), 1);
        ptx::mbarrier_init(ptx::shared_address(&smem.v_full[g][slot]), 1);
      }
    }
    ptx::publish_barriers();
    if (early) ptx::wait_for_earlier_grids();
    if (tiles[0] > 0) {
      load<typename S::QTile>(smem.q, maps.q, smem.q_full, task.q_row + task.first_query,
                              task.head);
    }
#pragma unroll
    for (int slot = 0; slot < S::kSlots; ++slot) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (slot < tiles[g]) load_k(g, slot, slot);
      }
    }
    if (tiles[0] <= S::kSlots) return;
    for (int g = 0; g < kGroups; ++g) {
      for (int slot = 0; slot < S::kSlots; ++slot) {
        ptx::mbarrier_init(ptx::shared_address(&smem.k_empty[g][slot]), kGroupWarps);
        ptx::mbarrier_init(ptx::shared_address(&smem.v_empty[g][slot]), kGroupWarps);
      }
    }
  }

  // The first round of V, then the other rounds. One lane.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int slot = 0; slot < S::kSlots; ++slot) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (slot < tiles[g]) load_v(g, slot, slot);
      }
    }
    RingPosition<S::kSlots> at;
    for (int i = S::kSlots; i < tiles[0]; ++i) {
      for (int g = 0; g < kGroups; ++g) {
        if (i >= tiles[g]) break;
        ptx::mbarrier_wait(ptx::shared_address(&smem.k_empty[g][at.slot]), at.parity);
        load_k(g, i, at.slot);
        ptx::mbarrier_wait(ptx::shared_address(&smem.v_empty[g][at.slot]), at.parity);
        load_v(g, i, at.slot);
      }
      at.next();
    }
  }

  __device__ __forceinline__ void run(int lane) {
    if (lane == 0) begin();
    __syncwarp();
    ptx::named_barrier_arrive(kReady, kThreads);
    if (lane == 0) finish();
    __syncwarp();
    if (early) ptx::start_next_grid();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
