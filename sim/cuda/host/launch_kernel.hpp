// Stands for src/cuda/host/launch_kernel.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "cuda/host/launch_shape.hpp"
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
      .registers = sim::first_registers(shape.threads, shape.blocks_per_sm)};
  return sim::enqueue(
      reinterpret_cast<const void*>(kernel), options, [=] { kernel(arguments...); }, stream);
}

}  // namespace flashcore::cuda::host
