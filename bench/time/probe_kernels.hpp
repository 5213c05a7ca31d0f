// Kernels that measure the GPU's limits: an empty one, and a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace flashcore::bench {

cudaError_t launch_empty_kernel(cudaStream_t stream);  // one block of one warp

// `bytes` must be a multiple of 16, at most 2^43; both pointers must be 16-byte aligned.
cudaError_t launch_copy_kernel(void* to, const void* from, size_t bytes, cudaStream_t stream);

}  // namespace flashcore::bench
