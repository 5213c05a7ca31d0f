// The finder: one warp that determines the block's next tile, and what the
// producer and the consumers must know about it, while the producer copies
// the current tile. The first tile is found while barriers are initialised.
//
//   producer   copies of tile t: wants t + 1 |  K V K V ...  | has t + 1 | Q of it ...
//   finder                                   | counter, find |
//
// It is a separate warp, since one tile costs about 1,000 clk of dependent arithmetic, and copies
// that start so late would stall all consumers. Its lanes look at the rows of one consumer each.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/packed_walk.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/forward_sm90/throughput/task.cuh"
#include "cuda/forward_sm90/throughput/tile_counter.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

template <class S>
struct Finder {
  typename S::Shared& smem;
  const typename S::KernelParams& p;
  const int lane;
  uint32_t taken = 0;  // the number of the current tile
  bool is_tile = true;
  RingPosition<1> at{};

  __device__ __forceinline__ TileCounter counter() const { return {p.launch_name, gridDim.x}; }

  // Returns the next tile: without a counter, every gridDim.x-th tile is this block's.
  __device__ __forceinline__ uint32_t next_tile() const {
    if (p.counter == nullptr) return taken + gridDim.x;
    uint32_t tile = 0;
    if (lane == 0) tile = ask(p.counter, counter());
    return __shfl_sync(0xffffffffU, tile, 0);
  }

  // With pages: stores the sequence, where its pages are listed once the task
  // is written (registers are scarce), and the keys that some query of the tile
  // before query `last` sees.
  __device__ __forceinline__ void set_entry(int entry) const {
    if constexpr (S::kPaged) pages().in_table = entry;
    if constexpr (S::kOptions) options().entry = entry;
  }
  __device__ __forceinline__ void set_table() const {
    if constexpr (S::kPaged) pages().in_table = find_table(p, pages().in_table);
  }
  __device__ __forceinline__ void set_seen(const TaskInfo& task, int last) const {
    if constexpr (S::kPaged) {
      pages().first_key = max(0, task.first_query + task.limits.low);
      pages().end_key = min(task.limits.len_kv, min(last, task.len_q) + task.limits.high);
    }
  }
  __device__ __forceinline__ TaskPages& pages() const {
    return smem.pages.of[at.passed % S::kTaskSlots];
  }
  __device__ __forceinline__ TaskOptions& options() const {
    return smem.options.of[at.passed % S::kTaskSlots];
  }
  // With options: stores where the options of the sequence and head are.
  __device__ __forceinline__ void set_options(const TaskInfo& task) const {
    if constexpr (S::kOptions) find_options(p, task, options());
  }

  // Writes the task of tile `taken`, except its ranges, immediately:
  // registers are scarce. Returns false if there are no more tiles.
  __device__ __forceinline__ bool find_task_of(TaskInfo& slot) {
    constexpr int kBlockQ = S::kConfig.block_q();
    if (p.packed) {
      typename PackedWalk<typename S::KernelParams>::Place place;
      if (!smem.walk.find(p, taken, kBlockQ, lane, place)) return false;
      if (lane == 0) {
        slot = find_packed_task(p, smem.walk.entries[place.lane], place.index, kBlockQ);
        set_entry(smem.walk.first_entry + place.lane);
      }
    } else {
      if (taken >= p.order.size()) return false;
      if (lane == 0) {
        slot = find_task(p, taken, kBlockQ);
        set_entry(slot.batch);
      }
    }
    __syncwarp();
    return true;
  }

  // Writes the task of tile `taken`, or that there are no more.
  __device__ __forceinline__ void find() {
    TaskInfo& slot = smem.task[at.passed % S::kTaskSlots];
    is_tile = find_task_of(slot);
    if (!is_tile) {
      if (lane == 0) {
        slot.rows_q = TaskInfo::kNoMore;
        slot.begin = slot.end = 0;
      }
      return;
    }
    const bool is_consumer = lane < S::kConsumers;
    const int first = slot.first_query + (is_consumer ? lane * kWarpgroupRows : 0);
    const int rows = is_consumer ? kWarpgroupRows : S::kConfig.block_q();
    const TileRange range =
        attention::tile_range(slot.limits, slot.len_q, first, first + rows, S::kBlockKv);
    if (lane == S::kConsumers) {
      slot.begin = range.begin, slot.end = range.end;
      set_seen(slot, first + rows);
    }
    if (is_consumer) slot.seen[lane] = range;
    if (lane == 0) set_table(), set_options(slot);
  }

  // Runs before the block's first barrier, when its threads have nothing else to do.
  __device__ __forceinline__ void find_first() {
    taken = blockIdx.x;
    if (p.packed) smem.walk.begin(p, S::kConfig.block_q(), lane);
    find();
  }

  __device__ __forceinline__ void find_others() {
    if (p.counter != nullptr && lane == 0) claim(p.counter, counter());
    if constexpr (S::kPaged)
      is_tile = smem.task[0].is_tile();  // read again rather than held: registers are scarce
    while (is_tile) {
      if (lane == 0) ptx::mbarrier_wait(ptx::shared_address(&smem.task_wanted), at.parity());
      __syncwarp();
      at.next();
      taken = next_tile();
      find();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&smem.task_found));
    }
    if (p.counter != nullptr && lane == 0) leave(p.counter, counter());
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
