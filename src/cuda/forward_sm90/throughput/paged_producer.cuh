// The producer of a kernel for pages: a warp that copies K, one that copies V, and one for Q. None
// waits for a slot that another one needs.
//
//   warp 0   K[last] K[last-1] ... | K'[last] ...
//   warp 2   V[last] V[last-1] ... | V'[last] ...
//   warp 3   Q                     | Q' ...
//
// All three follow the finder's tasks. It finds the next one when each of them has asked for it.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/page_copies.cuh"
#include "cuda/forward_sm90/throughput/producer.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// A warp's way through the block's tasks. The first is ready at the block's first barrier.
template <class S>
struct TaskWalk {
  typename S::Shared& smem;
  uint32_t taken = 0;

  __device__ __forceinline__ uint32_t slot() const { return taken % S::kTaskSlots; }
  __device__ __forceinline__ const TaskInfo& task() const { return smem.task[slot()]; }
  // Called by one thread of the warp.
  __device__ __forceinline__ void want_next() const {
    ptx::mbarrier_arrive(ptx::shared_address(&smem.task_wanted));
  }
  __device__ __forceinline__ void take_next() {
    ptx::mbarrier_wait(ptx::shared_address(&smem.task_found), taken % 2);
    ++taken;
  }
};
inline constexpr int kPageWarps = 3;  // that want and take tasks

// The rings of K or of V.
template <class S, class Tile>
struct PageRing {
  unsigned char (&tiles)[S::kStages][Tile::kBytes];
  uint64_t (&full)[S::kStages], (&empty)[S::kStages];
};

// Copies K or V of all tasks. asks_at: a task's blocks that are left when this warp asks for the
// next one, if they are handed out one by one; otherwise it asks at once.
template <class S, class Tile>
__device__ __forceinline__ void copy_pages(TaskWalk<S> tasks, PageCopies<Tile> copies,
                                           PageRing<S, Tile> ring, bool hands_out, int asks_at,
                                           bool leads) {
  RingPosition<S::kStages> at;
#pragma unroll 1
  while (tasks.task().is_tile()) {
    const TaskInfo& task = tasks.task();
    const TaskPages& pages = tasks.smem.pages.of[tasks.slot()];
    const int begin = task.begin, last = task.end - 1;
    const int asks = hands_out ? min(last, begin + asks_at) : last;
    if (last < begin) {
      if (leads) tasks.want_next();
    } else {
      copies.look_up(task, pages, last);
      copies.find(task);
      copies.look_up(task, pages, last - 1);
    }
#pragma unroll 1
    for (int block = last; block >= begin; --block) {
      if (leads && block == asks) tasks.want_next();
      const uint32_t full = ptx::shared_address(&ring.full[at.slot()]);
      ptx::mbarrier_wait(ptx::shared_address(&ring.empty[at.slot()]), at.parity() ^ 1);
      __syncwarp();
      copies.copy(ptx::shared_address(ring.tiles[at.slot()]), full, task);
      copies.find(task);
      copies.look_up(task, pages, block - 2);
      at.next();
    }
    tasks.take_next();
    __syncwarp();  // a late lane must not wait for a later task
  }
}

// Copies Q of all tasks, by one thread.
template <class S>
__device__ __forceinline__ void copy_queries(TaskWalk<S> tasks, const CUtensorMap& map) {
  RingPosition<S::kQSlots> at;
#pragma unroll 1
  while (true) {
    const TaskInfo& task = tasks.task();
    load_queries<S>(tasks.smem, map, at, task);
    if (!task.is_tile()) return;
    tasks.want_next();
    tasks.take_next();
  }
}

template <class S>
__device__ __forceinline__ void produce_pages(typename S::Shared& smem, const Maps& maps,
                                              const PagedParams& p) {
  const int warp = ptx::thread_index() / kWarpThreads, lane = ptx::thread_index() % kWarpThreads;
  const TaskWalk<S> tasks{.smem = smem};
  const bool hands_out = p.counter != nullptr;
  if (warp == 0) {
    using Tile = typename S::KTile;
    copy_pages<S, Tile>(tasks, {p, maps.k, p.k_steps, lane}, {smem.k, smem.k_full, smem.k_empty},
                        hands_out, kAsksAt, lane == 0);
  } else if (warp == 2) {  // a block behind K
    using Tile = typename S::VTile;
    copy_pages<S, Tile>(tasks, {p, maps.v, p.v_steps, lane}, {smem.v, smem.v_full, smem.v_empty},
                        hands_out, kAsksAt + 1, lane == 0);
  } else if (warp == 3 && lane == 0) {
    copy_queries<S>(tasks, maps.q);
  }
}

}  // namespace flashcore::cuda::forward_sm90::throughput
