// Stands for src/cuda/host/launch_kernel.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cuda/host/driver_launch.hpp"
#include "runtime/launch.hpp"

namespace flashcore::cuda::host {

template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  const sim::LaunchOptions options{
      .grid = {shape.grid.x, shape.grid.y, shape.grid.z},
      .block = {shape.threads},
      .shared_bytes = shape.shared_bytes,
      .cluster_blocks = static_cast<int>(shape.cluster),
      .registers = sim::first_registers(shape.threads, shape.blocks_an_sm),
      .starts_early = shape.early};
  return sim::enqueue(
      reinterpret_cast<const void*>(kernel), options, [=] { kernel(arguments...); }, stream);
}

template <class... Parameters>
cudaError_t launch_kernel(cudaFunction_t /*function*/, void (*kernel)(Parameters...),
                          const LaunchShape& shape, cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  return launch_kernel(kernel, shape, stream, arguments...);
}

template <class... Parameters>
cudaError_t find_function(cudaFunction_t& function, void (*kernel)(Parameters...)) {
  function = reinterpret_cast<cudaFunction_t>(kernel);
  return cudaSuccess;
}

}  // namespace flashcore::cuda::host
