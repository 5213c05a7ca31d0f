// backward_sm90: one block per KV tile, a producer and
// two consumers, on TMA, mbarriers and wgmma (sm_90a).
//
//   producer     | K Q V dO | dO Q | dO Q | ...                          a stage ahead
//   consumer 0   | S | dV dP | dS | S dK | dQ dV | dP | dS | ... | dK, dV stored |
//   consumer 1      | S | dV dP | dS | S dK | dQ dV | dP | ...
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/throughput/adder.cuh"
#include "cuda/backward_sm90/throughput/consumer.cuh"
#include "cuda/backward_sm90/throughput/pair_loader.cuh"
#include "cuda/backward_sm90/throughput/producer.cuh"
#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
__device__ __forceinline__ void make_barriers(typename S::Shared& smem) {
  ptx::mbarrier_init(ptx::shared_address(&smem.kv_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.ds_full), kConsumerWarps);
  ptx::mbarrier_init(ptx::shared_address(&smem.ds_empty), kConsumerWarps);
  for (int stage = 0; stage < kStages; ++stage) {
    ptx::mbarrier_init(ptx::shared_address(&smem.q_full[stage]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.o_full[stage]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.q_empty[stage]), kConsumers * kWarpgroupThreads);
    ptx::mbarrier_init(ptx::shared_address(&smem.o_empty[stage]), kConsumerWarps);
  }
  for (int group = 0; group < kConsumers && S::kDeterministic; ++group) {
    ptx::mbarrier_init(ptx::shared_address(&smem.turn_here[group]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.sums_here[group]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.staged[group]), kWarpgroupWarps);
    ptx::mbarrier_init(ptx::shared_address(&smem.stored[group]), kWarpgroupThreads);
    ptx::mbarrier_init(ptx::shared_address(&smem.staging_free[group]), 1);
  }
  for (int step = 0; step < kSteps && S::kDeterministic; ++step) {
    ptx::mbarrier_init(ptx::shared_address(&smem.described[step]), 1);
  }
  if constexpr (S::kPairs) {
    ptx::mbarrier_init(ptx::shared_address(&smem) + S::kPairFull, 1);
    ptx::mbarrier_init(ptx::shared_address(&smem) + S::kPairEmpty, kConsumers * kWarpgroupThreads);
  }
  ptx::mbarrier_init_fence();
}

// The task is not kept in registers: it is needed before the products, and found again after
// them.
template <class S>
__device__ __forceinline__ void consume(const Maps& maps, const typename S::KernelParams& p) {
  typename S::Shared& smem = S::shared();
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  Consumer<S> c{.smem = smem,
                .params = p,
                .shared = ptx::shared_address(&smem),
                .group = ptx::uniform(thread / kWarpgroupThreads) - 1};
  if constexpr (S::kPairs) clear_slope_terms(c);
  const int steps = own_task<S>(p, smem.tile).steps;
  if (steps > 0) {
    c.run(steps);
    if (!c.all_finite()) atomicExch(p.not_finite + smem.tile, 1U);
    c.stage_sums();
  } else {
    c.stage_zeros();
  }
  c.store_rows(maps, own_task<S>(p, smem.tile));
}

template <class S>
__device__ __forceinline__ void run_block(const Maps& maps, const typename S::KernelParams& p) {
  typename S::Shared& smem = S::shared();
  if (threadIdx.x == 0) {
    make_barriers<S>(smem);
    // Tiles whose turn is first must already run: blocks take tiles in the order in which they start.
    smem.tile = S::kDeterministic ? atomicAdd(p.next_tile, 1U) : blockIdx.x;
    if constexpr (S::kSharesTask) smem.task = find_task<S>(p, smem.tile);
    if constexpr (S::kPairs) S::pair_terms() = find_pair_terms(p, smem.tile);
  }
  __syncthreads();
  if constexpr (S::kOptions) {
    if (is_without_rows(p, smem.task)) return;
  }
  if (ptx::thread_index() < kWarpgroupThreads) {
    ptx::release_registers<kProducerRegisters>();
    const auto warp = static_cast<int>(threadIdx.x / kWarpThreads);
    const typename S::OwnTask& task = own_task<S>(p, smem.tile);
    if (threadIdx.x % kWarpThreads != 0 || task.steps == 0) return;
    if (warp == 0) {
      Producer<S> producer{
          .smem = smem, .maps = maps, .p = p, .task = task, .walk = Walk<S>(p, task)};
      producer.run();
    } else if (S::kDeterministic && warp <= kConsumers) {
      const Adder<S> adder{.smem = smem, .p = p, .task = task, .group = warp - 1};
      adder.run();
    } else if constexpr (S::kPairs) {
      PairLoader<S> loader{
          .shared = ptx::shared_address(&smem), .p = p, .task = task, .walk = Walk<S>(p, task)};
      loader.run();
    }
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    consume<S>(maps, p);
  }
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
// P: Params, or OptionParams or PairParams for instances with options or pairs, which are deterministic.
template <int kConfigIndex, class Element, bool kDeterministic, class P>
__global__ void __launch_bounds__(kThreads, 1)
    gradient_kernel(const __grid_constant__ Maps maps, const __grid_constant__ P p) {
  if constexpr (ptx::kHasWgmma) {
    run_block<Shape<kConfigIndex, Element, kDeterministic, kHasOptions<P>, kHasPairs<P>>>(maps, p);
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
