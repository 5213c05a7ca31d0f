// Launching a kernel by its host function.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

namespace flashcore::cuda::host {

// kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...), except for the result, which is
// that of this launch: what the runtime keeps as the last error may be an earlier call's, and is
// the caller's to find.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), unsigned int blocks, unsigned int threads,
                          std::size_t shared_bytes, cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<Parameters*>(&arguments)..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                          pointers, shared_bytes, stream);
}

}  // namespace flashcore::cuda::host
