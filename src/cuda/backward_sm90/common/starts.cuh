// Finds out whether the starts of a packed batch decrease.
#pragma once

#include <cuda_runtime.h>

#include "cuda/attention/entry.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"

namespace flashcore::cuda::backward_sm90 {

// Called by all threads of a block.
__device__ __forceinline__ bool do_starts_fall(const RowParams& p) {
  bool falls = false;
  for (int b = static_cast<int>(threadIdx.x); b < p.batch; b += kRowThreads) {
    for (const attention::EntryVector* const starts : {&p.cu_seqlens_q, &p.cu_seqlens_kv}) {
      falls = falls || starts->at(int64_t{b} + 1) < starts->at(b);
    }
  }
  return __syncthreads_or(static_cast<int>(falls)) != 0;
}

}  // namespace flashcore::cuda::backward_sm90
