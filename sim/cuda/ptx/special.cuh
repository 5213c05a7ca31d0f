// Stands for src/cuda/ptx/special.cuh.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::cuda::ptx {

inline int thread_index() { return static_cast<int>(threadIdx.x); }
inline uint32_t block_index() { return blockIdx.x; }
inline int block_index_y() { return static_cast<int>(blockIdx.y); }
inline int block_index_z() { return static_cast<int>(blockIdx.z); }
inline int read_here(int parameter) { return parameter; }

}  // namespace flashcore::cuda::ptx
