// Launching a kernel by its host function and the runtime: for the ladder, and for kernels of tests. The kernels of the
// library are launched by cuda/launch.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cuda/host/launch_shape.hpp"

namespace flashcore::cuda::host {

// kernel<<<shape.grid, shape.threads, shape.shared_bytes, stream>>>(arguments...). Returns the result of this launch:
// the runtime's last error may be an earlier call's, and the caller has not looked at it yet.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<Parameters*>(&arguments)..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, dim3(shape.threads),
                          pointers, shape.shared_bytes, stream);
}

}  // namespace flashcore::cuda::host
