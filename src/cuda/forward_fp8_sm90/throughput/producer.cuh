// The producer: one thread, which finds tiles and copies what the consumers need, ahead of them.
//
//   a tile   Q K[last] K[last-1] V[last] K[last-2] V[last-1] ... V[first]
//
// Each copy waits until its slot is free. V^T is there when the kernel that makes it has ended; all
// other inputs were complete before that began.
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
  const Params& p;
  Ring<S::kQSlots> q_at{};
  Ring<S::kKStages> k_at{};
  Ring<S::kVStages> v_at{};
  bool has_values = false;  // V^T is complete

  // A fresh barrier lets the phase before its first pass.
  __device__ __forceinline__ static void wait_empty(const uint64_t& barrier, uint32_t parity) {
    ptx::mbarrier_wait(ptx::shared_address(&barrier), parity ^ 1);
  }

  // The task, and Q, or word that there is none.
  __device__ __forceinline__ void give_task(const Task& task) {
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
      ptx::tma_load_4d(ptx::shared_address(smem.q[q_at.slot][w]), &maps.q, full, 0,
                       task.first_query + w * kWarpgroupRows, task.head, task.batch);
    }
    q_at.next();
  }
  __device__ __forceinline__ void load_k(const Task& task, int block) {
    wait_empty(smem.k_empty[k_at.slot], k_at.parity);
    const uint32_t full = ptx::shared_address(&smem.k_full[k_at.slot]);
    ptx::mbarrier_arrive_expect(full, S::KTile::kBytes);
    ptx::tma_load_4d(ptx::shared_address(smem.k[k_at.slot]), &maps.k, full, 0, block * kBlockKv,
                     task.kv_head, task.batch);
    k_at.next();
  }
  __device__ __forceinline__ void load_v(const Task& task, int block) {
    if (!has_values) ptx::wait_for_earlier_grids();
    has_values = true;
    wait_empty(smem.v_empty[v_at.slot], v_at.parity);
    const uint32_t full = ptx::shared_address(&smem.v_full[v_at.slot]);
    ptx::mbarrier_arrive_expect(full, S::kVCopied);
    ptx::tma_load_4d(ptx::shared_address(smem.v[v_at.slot]), &maps.vt, full, block * kBlockKv, 0,
                     task.kv_head, task.batch);
    v_at.next();
  }

  __device__ __forceinline__ void run() {
    for (uint32_t index = blockIdx.x; index < p.order.size(); index += gridDim.x) {
      const Task task = find_task(p, index, S::kConsumers);
      give_task(task);
      for (int block = task.end - 1; block >= task.begin; --block) {
        load_k(task, block);
        if (block + 1 < task.end) load_v(task, block + 1);
      }
      if (task.begin < task.end) load_v(task, task.begin);
    }
    if (!has_values) ptx::wait_for_earlier_grids();  // some thread of every block does
    Task none{};
    none.rows_q = Task::kNoMore;
    give_task(none);
  }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
