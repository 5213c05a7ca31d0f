// Stands for src/cuda/ptx/special.cuh.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::cuda::ptx {

inline int thread_index() { return static_cast<int>(threadIdx.x); }
inline uint32_t block_index() { return blockIdx.x; }

}  // namespace flashcore::cuda::ptx
