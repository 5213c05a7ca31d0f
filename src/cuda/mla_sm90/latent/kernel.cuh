// mla_sm90: a block computes its share of the keys of a batch (units.cuh), for 64 heads of a query. One
// warpgroup makes probabilities (scores.cuh), two sum values (values.cuh), around a ring of three
// slots (config.hpp). Whole sequences become rows of O; parts are written to memory, where join.cuh joins them.
//
//   full    slot is loaded            loader          -> scores
//   ready   its probabilities         scores          -> values
//   go      the next scores           scores          -> values: their products run under the softmax
//   empty   slot was read             values          -> loader
#pragma once

#include <cstdint>

#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/mla_sm90/latent/block.cuh"
#include "cuda/mla_sm90/latent/scores.cuh"
#include "cuda/mla_sm90/latent/units.cuh"
#include "cuda/mla_sm90/latent/values.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::mla_sm90::latent {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;

__device__ __forceinline__ void begin_barriers(const Block& block) {
  constexpr uint32_t kScoreWarps = 4, kValueWarps = 8;
#pragma unroll
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    ptx::mbarrier_init(block.full(slot), 1);
    ptx::mbarrier_init(block.ready(slot), kScoreWarps * kFactorLanes);
    ptx::mbarrier_init(block.go(slot), 1);
    ptx::mbarrier_init(block.empty(slot), kValueWarps * kFactorLanes);
  }
  ptx::mbarrier_init_fence();
}

template <class Element>
__global__ void __launch_bounds__(kThreads, 1)
    latent_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  if (threadIdx.x == 0) {
    begin_barriers(this_block(p, 0));
    ptx::prefetch_tensor_map(&maps.q);
    ptx::prefetch_tensor_map(&maps.k);
  }
  ptx::wait_for_earlier_grids();
  ptx::start_next_grid();  // that grid reads only results of earlier grids before it waits
  const int count =
      uniform(find_units(p, this_block(p, 0), reinterpret_cast<Scratch&>(block_state().factor)));
  if (count == 0) return;
  const int group = uniform(static_cast<int>(threadIdx.x) / 128);
  if (group == 0) {
    ptx::acquire_registers<kScoreRegisters>();
    const Block block = this_block(p, count);
    Scores<Element>(p, block).run();
  } else {
    ptx::release_registers<kValueRegisters>();
    const Block block = this_block(p, count);
    Values<Element>(p, maps, block, group - 1).run();
  }
}

}  // namespace flashcore::cuda::mla_sm90::latent
