// forward_sm90: persistent blocks, a producer and consumers, on TMA, mbarriers and wgmma (sm_90a).
//
//   producer   tile t: | K, Q, K, V, ... |  tile t': | K, Q, ...      a ring or two ahead
//   consumer 0          | S | O, S | O, S | ... | O | store |  next tile ...
//   consumer 1             | S | O, S | ...
#pragma once

#include <algorithm>

#include "cuda/forward_sm90/consumer.cuh"
#include "cuda/forward_sm90/element.cuh"
#include "cuda/forward_sm90/epilogue.cuh"
#include "cuda/forward_sm90/producer.cuh"
#include "cuda/forward_sm90/shape.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::forward_sm90 {

// A consumer's share of one tile, of which the first scores may be there already. Starts those of
// the next tile beside the last product: of whatever lies in the slots where it sees another block
// first, or where there is no next tile. Nobody looks at these.
template <class S>
__device__ __forceinline__ void attend(const Params& p, Consumer<S>& c) {
  const TaskInfo& task = c.task();
  RowEnd ends[2];
  if (c.range.empty()) {
#pragma unroll 1
    for (int i = uniform(task.end - task.begin); i > 0; --i) {
      c.pass_block(i != task.end - task.begin);
    }
    c.release_q();
    c.clear();
    end_rows<S>(p, c, task, ends);
    if (__any_sync(0xffffffffU, !store_rows<S>(p, task, c, ends))) {
      compute_rows_exactly<S>(p, task, c.group * kWarpgroupRows + 16 * c.warp(), c.lane());
    }
    c.q_at.next();
    c.open_task();
    c.started = false;
    return;
  }
  if (!c.started) {
#pragma unroll 1
    for (int i = c.passes_before; i > 0; --i) c.pass_block(true);
    c.begin_block();
    c.wait_for_k();
    c.start_first();
    ptx::warpgroup_wait<0>();
  }
  int left = c.range.end - c.range.begin - 1;
  c.first_block(left);
#pragma unroll 1
  while (left > 0) c.next_block(--left);
  c.release_q();
  const int passes = c.passes_after;
  c.start_last_product();
  if (passes > 0) {  // before the wait for the next tile, which comes behind them
    ptx::warpgroup_wait<0>();
    c.pin_outputs();
    c.release_v();
#pragma unroll 1
    for (int i = passes; i > 0; --i) c.pass_block(true);
  }
  if constexpr (S::kStartsNext) {
    c.q_at.next();
    c.open_task();
    c.started = passes == 0 && c.can_start();
    if (c.started) c.wait_for_k();
    c.start_first();
  }
  end_rows<S>(p, c, task, ends);
  ptx::warpgroup_wait<S::kStartsNext ? 1 : 0>();
  c.pin_outputs();
  if (passes == 0) c.release_v();
  const bool exact = __any_sync(0xffffffffU, !store_rows<S>(p, task, c, ends));
  if constexpr (S::kStartsNext) {
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(c.s);
  }
  if (exact) compute_rows_exactly<S>(p, task, c.group * kWarpgroupRows + 16 * c.warp(), c.lane());
  if constexpr (!S::kStartsNext) {
    c.q_at.next();
    c.open_task();
  }
}

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& smem, const Params& p) {
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  Consumer<S> c{.smem = smem,
                .params = p,
                .shared = ptx::shared_address(&smem),
                .thread = thread,
                .group = static_cast<int>(ptx::uniform(thread / kWarpgroupThreads)) - 1};
  c.begin_turns();
  c.open_task();
  while (c.is_tile) attend<S>(p, c);
}

template <class S>
__device__ __forceinline__ void initialise_barriers(typename S::Shared& smem) {
  for (int slot = 0; slot < S::kQSlots; ++slot) {
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_init(ptx::shared_address(&smem.q_full[slot][w]), 1);
      ptx::mbarrier_init(ptx::shared_address(&smem.q_empty[slot][w]), kWarpgroupWarps);
    }
  }
  constexpr int kConsumerWarps = kWarpgroupWarps * S::kConsumers;
  for (int slot = 0; slot < kStages; ++slot) {
    ptx::mbarrier_init(ptx::shared_address(&smem.k_full[slot]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.v_full[slot]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.k_empty[slot]), kConsumerWarps);
    ptx::mbarrier_init(ptx::shared_address(&smem.v_empty[slot]), kConsumerWarps);
  }
  ptx::mbarrier_init_fence();
}

template <class S>
__device__ __forceinline__ void run_block(const Maps& maps, const Params& p) {
  extern __shared__ __align__(1024) unsigned char storage[];
  auto& smem = *reinterpret_cast<typename S::Shared*>(storage);
  if (threadIdx.x == 0) initialise_barriers<S>(smem);
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x / kWarpgroupThreads);
  if (warpgroup == 0) {
    ptx::release_registers<S::kConfig.producer_registers()>();
    if (threadIdx.x == 0) Producer<S>{.smem = smem, .maps = maps, .p = p}.run();
  } else {
    ptx::acquire_registers<S::kConfig.consumer_registers()>();
    consume<S>(smem, p);
  }
}

// By index: nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, bool kFeatures>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(), 1)
    forward_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  if constexpr (ptx::kHasWgmma) run_block<Shape<kConfigIndex, Element, kFeatures>>(maps, p);
}

}  // namespace flashcore::cuda::forward_sm90
