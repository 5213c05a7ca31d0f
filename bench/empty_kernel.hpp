// The least that a launch costs: a kernel that does nothing.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::bench {

cudaError_t launch_empty_kernel(cudaStream_t stream);

}  // namespace flashcore::bench
