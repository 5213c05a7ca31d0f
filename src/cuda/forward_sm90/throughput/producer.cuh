// The producer: one thread, which copies ahead what the consumers need (pages: paged_producer.cuh).
//
//   a tile   K[last] Q  K[last-1] V[last]  K[last-2] V[last-1] ... Q' ... K'[last] V[first]
//
// Copies start in the order in which consumers need them; each waits until
// its slot is free. With a single Q slot, Q' follows the tile's last V.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Copies all panels of a tile whose first row is `row`.
template <class Tile>
__device__ __forceinline__ void load_tile(const unsigned char* shared, const CUtensorMap& map,
                                          const uint64_t& full, int row, int head, int batch) {
  const uint32_t barrier = ptx::shared_address(&full), to = ptx::shared_address(shared);
  ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &map, barrier, panel * Tile::kPanelColumns,
                     row, head, batch);
  }
}

// Copies Q of a task, or signals that there are no more.
template <class S>
__device__ __forceinline__ void load_queries(typename S::Shared& smem, const CUtensorMap& map,
                                             RingPosition<S::kQSlots>& at, const TaskInfo& task) {
#pragma unroll 1
  for (int w = 0; w < S::kConsumers; ++w) {
    if (at.passed > 0) {  // released by the previous tile
      ptx::mbarrier_wait(ptx::shared_address(&smem.q_empty[at.slot()][w]),
                         RingPosition<S::kQSlots>{at.passed - 1}.parity());
    }
    if (task.is_tile()) {
      load_tile<typename S::QTile>(smem.q[at.slot()][w], map, smem.q_full[at.slot()][w],
                                   task.q_row + w * kWarpgroupRows, task.head, task.batch);
    } else {
      ptx::mbarrier_arrive(ptx::shared_address(&smem.q_full[at.slot()][w]));
    }
  }
  at.next();
}

// If tiles are handed out one by one, a block asks for its next tile when this many
// KV blocks are left, so that a block that finishes early gets more tiles.
// Otherwise it asks at once, so that the next Q is copied long before it is needed.
inline constexpr int kAsksAt = 2;

template <class S>
struct Producer {
  typename S::Shared& smem;
  const typename S::KernelMaps& maps;
  RingPosition<S::kQSlots> q_at;  // tasks advance with it, in slots of their own
  RingPosition<S::kStages> k_at, v_at;
  bool copies_bias = false;
  RingPosition<1> bias_at[S::kOptions ? S::kConsumers : 1] = {};

  // Asks the finder for the next task. The first task is ready at the block's first barrier.
  __device__ __forceinline__ void want_task() const {
    ptx::mbarrier_arrive(ptx::shared_address(&smem.task_wanted));
  }
  __device__ __forceinline__ const TaskInfo* take_task() const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.task_found), (q_at.passed - 1) % 2);
    return &smem.task[q_at.passed % S::kTaskSlots];
  }

  __device__ __forceinline__ void load_q(const TaskInfo& task) {
    load_queries<S>(smem, maps.q, q_at, task);
  }
  __device__ __forceinline__ void load_k(const TaskInfo& task, int block) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.k_empty[k_at.slot()]), k_at.parity() ^ 1);
    copy_k(task, block);
  }
  __device__ __forceinline__ void copy_k(const TaskInfo& task, int block) {
    load_tile<typename S::KTile>(smem.k[k_at.slot()], maps.k, smem.k_full[k_at.slot()],
                                 task.kv_row + block * S::kBlockKv, task.kv_head, task.batch);
    k_at.next();
  }
  __device__ __forceinline__ void load_v(const TaskInfo& task, int block) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.v_empty[v_at.slot()]), v_at.parity() ^ 1);
    load_tile<typename S::VTile>(smem.v[v_at.slot()], maps.v, smem.v_full[v_at.slot()],
                                 task.kv_row + block * S::kBlockKv, task.kv_head, task.batch);
    v_at.next();
  }
  // Copies the biases of a block for each consumer that sees the block.
  __device__ __forceinline__ void load_bias(const TaskInfo& task, int block) {
    if constexpr (S::kOptions) {
      if (!copies_bias) return;
#pragma unroll
      for (int w = 0; w < S::kConsumers; ++w) {
        if (block < task.seen[w].begin || block >= task.seen[w].end) continue;
        auto& slots = smem.options;
        ptx::mbarrier_wait(ptx::shared_address(&slots.empty[w]), bias_at[w].parity() ^ 1);
        using Tile = typename S::BiasTile;
        const uint32_t full = ptx::shared_address(&slots.full[w]),
                       to = ptx::shared_address(slots.bias[w]);
        ptx::mbarrier_arrive_expect(full, Tile::kBytes);
        const TaskOptions& options = slots.of[&task - smem.task];
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel) {
          ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &maps.bias, full,
                           block * S::kBlockKv + panel * Tile::kPanelColumns,
                           task.first_query + w * kWarpgroupRows, options.bias_head,
                           options.bias_entry);
        }
        bias_at[w].next();
      }
    }
  }
  __device__ __forceinline__ void load_first_k(const TaskInfo& task) {
    if (task.begin < task.end) load_k(task, task.end - 1);
  }

  // Other threads start the first copies, before this one runs.
  __device__ __forceinline__ void start_k() {
    const TaskInfo& task = smem.task[0];
    if (task.begin < task.end) copy_k(task, task.end - 1);
  }
  __device__ __forceinline__ void start_q() { load_q(smem.task[0]); }

  __device__ __forceinline__ void run(bool hands_out) {
    const TaskInfo* next = &smem.task[0];
    if (next->begin < next->end) k_at.next();
    q_at.next();
    while (next->is_tile()) {
      const TaskInfo& task = *next;
      next = nullptr;
      const int last = task.end - task.begin - 1;
      const int asks_at = hands_out ? min(last, kAsksAt) : last;
      if (last < 0) want_task();
      for (int left = last; left >= 0; --left) {
        if (left == asks_at) want_task();
        load_bias(task, task.begin + left);
        if (left > 0) {
          load_k(task, task.begin + left - 1);
        } else if (next != nullptr) {
          load_first_k(*next);
        }
        load_v(task, task.begin + left);
        if (left > 0 && left == asks_at) {
          next = take_task();
          if constexpr (S::kQSlots > 1) load_q(*next);
        }
      }
      const bool short_tile = next == nullptr;
      if (short_tile) {
        next = take_task();
        load_first_k(*next);
      }
      if (short_tile || S::kQSlots == 1) load_q(*next);
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
