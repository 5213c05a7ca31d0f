// backward_sm90_wide: one launch of two kinds of blocks (sm_90a).
//
//   blocks 0 ..       128 queries each: dQ (queries.cuh)
//   the rest          64 keys each: dK and dV (keys.cuh)
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/wide/keys.cuh"
#include "cuda/backward_sm90/wide/queries.cuh"

namespace flashcore::cuda::backward_sm90::wide {

template <class Element, class P>
__device__ __forceinline__ void run_block(const Maps& maps, const P& p) {
  const uint32_t index = blockIdx.x, queries = p.query_order.size();
  if (index < queries) {
    run_queries<Element>(maps, p, index);
  } else {
    run_keys<Element>(maps, p, index - queries);
  }
}

// P: Params, or OptionParams.
template <class Element, class P>
__global__ void __launch_bounds__(kThreads, 1)
    wide_gradient_kernel(const __grid_constant__ Maps maps, const __grid_constant__ P p) {
  if constexpr (ptx::kHasWgmma) run_block<Element>(maps, p);
}

}  // namespace flashcore::cuda::backward_sm90::wide
