// dBias of backward_sm90:options: persistent blocks, each with a tile of dBias at a time, over everything that shares
// it. No two blocks write the same element, so the result is deterministic, and no copy of dBias is needed.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/throughput/bias/consumer.cuh"
#include "cuda/backward_sm90/throughput/bias/producer.cuh"
#include "cuda/ptx/registers.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
__device__ __forceinline__ void run_bias_block(const Maps& maps, const BiasParams& p) {
  typename S::Shared& smem = S::shared();
  const uint32_t shared = ptx::shared_address(&smem);
  if (threadIdx.x == 0) {
    for (uint32_t slot = 0; slot < S::kSlots; ++slot) {
      ptx::mbarrier_init(shared + S::kFull + 8 * slot, 1);
      ptx::mbarrier_init(shared + S::kEmpty + 8 * slot, kConsumers * kWarpgroupThreads);
    }
    ptx::mbarrier_init(shared + S::kBiasFull, 1);
    ptx::mbarrier_init(shared + S::kBiasEmpty, kConsumers * kWarpgroupThreads);
    ptx::mbarrier_init_fence();
    smem.key = p.pairs.dropout ? dropout_key_of(p.pairs) : PhiloxKey{};
  }
  __syncthreads();
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  if (thread < kWarpgroupThreads) {
    ptx::release_registers<kBiasProducerRegisters>();
    if (thread == 0) {
      BiasProducer<S> producer{.smem = smem, .maps = maps, .p = p, .shared = shared};
      producer.run();
    } else if (thread / kWarpThreads == 1) {
      const BiasTileLoader<S> loader{.p = p, .shared = shared};
      loader.run(static_cast<int>(thread % kWarpThreads));
    }
  } else {
    ptx::acquire_registers<kBiasConsumerRegisters>();
    BiasConsumer<S> consumer{.smem = smem,
                             .params = p,
                             .shared = shared,
                             .group = ptx::uniform(thread / kWarpgroupThreads) - 1};
    consumer.run();
  }
}

template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kThreads, 1)
    bias_gradient_kernel(const __grid_constant__ Maps maps, const __grid_constant__ BiasParams p) {
  if constexpr (ptx::kHasWgmma) run_bias_block<BiasShape<kConfigIndex, Element>>(maps, p);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
