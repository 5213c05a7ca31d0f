// The producer: one thread, which finds tiles and copies ahead what the consumers need.
//
//   a tile   Q K[last] K[last-1] V[last] K[last-2] V[last-1] ... V[first]
//
// Each copy waits until its slot is free. V^T is complete when the kernel that
// makes it has ended; all other inputs were complete before that kernel began.
#pragma once

#include <cstdint>

#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

template <class S>
struct Producer {
  typename S::Shared& smem;
  const Maps& maps;
  const typename S::Params& p;
  Ring<S::kQSlots> q_at{};
  Ring<S::kKStages> k_at{};
  Ring<S::kVStages> v_at{};
  bool has_values = false;  // V^T is complete

  // A wait for the phase before a barrier's first does not block.
  __device__ __forceinline__ static void wait_empty(const uint64_t& barrier, uint32_t parity) {
    ptx::mbarrier_wait(ptx::shared_address(&barrier), parity ^ 1);
  }

  // Copies a box of Q or K from row `row` of the sequence on, panel by panel.
  template <class Tile>
  __device__ __forceinline__ void load_rows(uint32_t to, const CUtensorMap& map, uint32_t full,
                                            int row, int head, const typename S::Task& task) const {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const uint32_t at = to + static_cast<uint32_t>(panel * Tile::kPanelBytes);
      const int column = panel * Tile::kPanelColumns;
      if constexpr (S::kOptions) {
        const bool is_q = &map == &maps.q;
        ptx::tma_load_4d(at, &map, full, column, row + (is_q ? task.q_row : task.kv_row), head,
                         p.packed ? 0 : task.batch);
      } else {
        ptx::tma_load_4d(at, &map, full, column, row, head, task.batch);
      }
    }
  }
  // Passes on the task and copies Q, or signals that there are no more tasks.
  __device__ __forceinline__ void give_task(const typename S::Task& task) {
    wait_empty(smem.q_empty[q_at.slot], q_at.parity);
    smem.task[q_at.slot] = task;
    const uint32_t full = ptx::shared_address(&smem.q_full[q_at.slot]);
    if (!task.is_tile()) {
      ptx::mbarrier_arrive(full);
      return;
    }
    ptx::mbarrier_arrive_expect(full, S::kConsumers * S::QTile::kBytes);
#pragma unroll
    for (int w = 0; w < S::kConsumers; ++w) {
      load_rows<typename S::QTile>(ptx::shared_address(smem.q[q_at.slot][w]), maps.q, full,
                                   task.first_query + w * kWarpgroupRows, task.head, task);
    }
    q_at.next();
  }
  __device__ __forceinline__ void load_k(const typename S::Task& task, int block) {
    wait_empty(smem.k_empty[k_at.slot], k_at.parity);
    const uint32_t full = ptx::shared_address(&smem.k_full[k_at.slot]);
    ptx::mbarrier_arrive_expect(full, S::KTile::kBytes);
    load_rows<typename S::KTile>(ptx::shared_address(smem.k[k_at.slot]), maps.k, full,
                                 block * S::kBlockKeys, task.kv_head, task);
    k_at.next();
  }
  __device__ __forceinline__ void load_v(const typename S::Task& task, int block) {
    if (!has_values) ptx::wait_for_earlier_grids();
    has_values = true;
    wait_empty(smem.v_empty[v_at.slot], v_at.parity);
    const uint32_t full = ptx::shared_address(&smem.v_full[v_at.slot]);
    ptx::mbarrier_arrive_expect(full, S::kVCopied);
    const uint32_t to = ptx::shared_address(smem.v[v_at.slot]);
    if constexpr (S::kOptions) {
      ptx::tma_load_4d(to, &maps.vt, full, task.v_block * kBlockKv + block * S::kBlockKeys,
                       task.column, task.kv_head, p.packed ? 0 : task.batch);
    } else {
      ptx::tma_load_4d(to, &maps.vt, full, block * S::kBlockKeys, 0, task.kv_head, task.batch);
    }
    v_at.next();
  }

  __device__ __forceinline__ uint32_t tiles() const {
    if constexpr (S::kOptions) return p.order.size() * static_cast<uint32_t>(p.parts);
    return p.order.size();
  }
  __device__ __forceinline__ void run() {
    for (uint32_t index = blockIdx.x; index < tiles(); index += gridDim.x) {
      typename S::Task task = find_tile(p, index, S::kConfig.block_q(), S::kConfig.head_dim_v);
      find_ranges(task, S::kConsumers, S::kBlockKeys);
      if constexpr (S::kOptions) {
        if (!task.exists()) continue;
      }
      give_task(task);
      for (int block = task.end - 1; block >= task.begin; --block) {
        load_k(task, block);
        if (block + 1 < task.end) load_v(task, block + 1);
      }
      if (task.begin < task.end) load_v(task, task.begin);
    }
    if (!has_values) ptx::wait_for_earlier_grids();  // required of one thread per block
    typename S::Task none{};
    none.rows_q = Task::kNoMore;
    give_task(none);
  }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
