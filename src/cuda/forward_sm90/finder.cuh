// The finder: one thread, which works out which tile the block takes next, and what the producer
// and the consumers must know of it, while the producer copies the tile before.
//
//   producer   copies of tile t: wants t + 1 |  K V K V ...  | has t + 1 | Q of it ...
//   finder                                   | counter, find |
//
// A thread of its own, since one tile costs some 1,000 clk of dependent arithmetic, and copies that
// come late by that much make all consumers wait.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/shape.cuh"
#include "cuda/forward_sm90/task.cuh"
#include "cuda/forward_sm90/tile_counter.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_sm90 {

template <class S>
struct Finder {
  typename S::Shared& smem;
  const Params& p;

  // The tile after number `taken`: without a counter every block takes each gridDim.x-th.
  __device__ __forceinline__ uint32_t next_tile(uint32_t taken) const {
    if (p.counter == nullptr) return taken + gridDim.x;
    return answer(p.counter, {p.launch_name, p.order.size()}, gridDim.x,
                  TileCounter::handed_out(ask(p.counter)));
  }

  // Writes the task of tile `taken`, or of the next after it that exists, or that there is none.
  // Returns the number of the tile.
  __device__ __forceinline__ uint32_t find(TaskInfo& slot, uint32_t taken) const {
    for (; taken < p.order.size(); taken = next_tile(taken)) {
      TaskInfo task = find_task(p, taken, S::kConfig.block_q());
      if (task.first_query >= task.rows_q) continue;  // a packed entry is shorter
      const BlockRange range = block_range(task.limits, task.len_q, task.first_query,
                                           task.first_query + S::kConfig.block_q(), S::kBlockKv);
      task.begin = range.begin, task.end = range.end;
      slot = task;
#pragma unroll 1
      for (int w = 0; w < S::kConsumers; ++w) {
        const int first = task.first_query + w * kWarpgroupRows;
        slot.seen[w] =
            block_range(task.limits, task.len_q, first, first + kWarpgroupRows, S::kBlockKv);
      }
      return taken;
    }
    slot.rows_q = TaskInfo::kNoMore;
    slot.begin = slot.end = 0;
    return taken;
  }

  __device__ __forceinline__ void run() const {
    if (p.counter != nullptr) claim(p.counter, {p.launch_name, p.order.size()});
    uint32_t taken = blockIdx.x;
    for (RingPosition<1> at;; at.next()) {
      TaskInfo& slot = smem.task[at.passed % S::kTaskSlots];
      if (at.passed > 0) {
        ptx::mbarrier_wait(ptx::shared_address(&smem.task_wanted), at.parity() ^ 1);
        taken = next_tile(taken);
      }
      taken = find(slot, taken);
      ptx::mbarrier_arrive(ptx::shared_address(&smem.task_found));
      if (taken >= p.order.size()) return;
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90
