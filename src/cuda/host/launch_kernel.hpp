// Launching a kernel by its host function: every launch of this library is one of these two.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cuda/host/driver_launch.hpp"

namespace flashcore::cuda::host {

// kernel<<<shape.grid, shape.threads, shape.shared_bytes, stream>>>(arguments...), except for the
// result, which is that of this launch: what the runtime keeps as the last error may be an earlier
// call's, and is the caller's to find.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<Parameters*>(&arguments)..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, dim3(shape.threads),
                          pointers, shape.shared_bytes, stream);
}

// The same by the driver: on the GPU that was current when find_function gave `function` for the
// kernel, and is now.
template <class... Parameters>
cudaError_t launch_kernel(cudaFunction_t function, void (*kernel)(Parameters...),
                          const LaunchShape& shape, cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<Parameters*>(&arguments)..., nullptr};
  return launch_function(function, reinterpret_cast<const void*>(kernel), shape, pointers, stream);
}

template <class... Parameters>
cudaError_t find_function(cudaFunction_t& function, void (*kernel)(Parameters...)) {
  return find_function(function, reinterpret_cast<const void*>(kernel));
}

}  // namespace flashcore::cuda::host
