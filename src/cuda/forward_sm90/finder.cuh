// The finder: one warp, which works out which tile the block takes next, and what the producer and
// the consumers must know of it, while the producer copies the tile before. The first tile is found
// while barriers are made.
//
//   producer   copies of tile t: wants t + 1 |  K V K V ...  | has t + 1 | Q of it ...
//   finder                                   | counter, find |
//
// A warp of its own, since one tile costs some 1,000 clk of dependent arithmetic, and copies that
// come late by that much make all consumers wait. Its lanes look at the rows of one consumer each.
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
  const int lane;
  uint32_t taken = 0;  // the number of the tile at hand
  RingPosition<1> at{};
  bool claimed = false;  // the counter

  // The tile after: without a counter every block takes each gridDim.x-th.
  __device__ __forceinline__ uint32_t next_tile() {
    if (p.counter == nullptr) return taken + gridDim.x;
    const TileCounter counter{p.launch_name, p.order.size()};
    uint32_t tile = 0;
    if (lane == 0 && !claimed) claim(p.counter, counter);
    if (lane == 0) tile = ask(p.counter, counter, gridDim.x);
    claimed = true;
    return __shfl_sync(0xffffffffU, tile, 0);
  }

  // Writes the task of tile `taken`, or of the next after it that exists, or that there is none.
  __device__ __forceinline__ void find() {
    TaskInfo& slot = smem.task[at.passed % S::kTaskSlots];
    for (; taken < p.order.size(); taken = next_tile()) {
      TaskInfo task = find_task(p, taken, S::kConfig.block_q());
      if (task.first_query >= task.rows_q) continue;  // a packed entry is shorter
      const bool is_consumer = lane < S::kConsumers;
      const int first = task.first_query + (is_consumer ? lane * kWarpgroupRows : 0);
      const int rows = is_consumer ? kWarpgroupRows : S::kConfig.block_q();
      const BlockRange range =
          block_range(task.limits, task.len_q, first, first + rows, S::kBlockKv);
      if (lane == S::kConsumers) {
        task.begin = range.begin, task.end = range.end;
        slot = task;
      }
      __syncwarp();
      if (is_consumer) slot.seen[lane] = range;
      return;
    }
    if (lane == 0) {
      slot.rows_q = TaskInfo::kNoMore;
      slot.begin = slot.end = 0;
    }
  }

  // Before the block meets, where its threads have nothing else to do.
  __device__ __forceinline__ void find_first() {
    taken = blockIdx.x;
    find();
  }

  __device__ __forceinline__ void find_others() {
    while (taken < p.order.size()) {
      if (lane == 0) ptx::mbarrier_wait(ptx::shared_address(&smem.task_wanted), at.parity());
      __syncwarp();
      at.next();
      taken = next_tile();
      find();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&smem.task_found));
    }
  }
};

}  // namespace flashcore::cuda::forward_sm90
