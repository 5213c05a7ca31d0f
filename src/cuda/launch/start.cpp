// A launch by the driver, or by the runtime.
#include <cudaTypedefs.h>

#include "cuda/host/driver_entry.hpp"
#include "cuda/launch/launch.hpp"

namespace flashcore::cuda::launch {
namespace {

cudaError_t start_by_runtime(const Kernel& kernel, const Grid& grid, unsigned int threads,
                             void** arguments, cudaStream_t stream) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = kernel.instance->shape.shared_bytes + grid.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = grid.early ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel.instance->function, arguments);
}

bool start_by_driver(const Kernel& kernel, const Grid& grid, unsigned int threads, void** arguments,
                     cudaStream_t stream) {
  static host::DriverEntry<PFN_cuLaunchKernelEx_v11060> entry("cuLaunchKernelEx", 11060);
  PFN_cuLaunchKernelEx_v11060 launch = nullptr;
  if (kernel.function == nullptr || entry.get(launch) != cudaSuccess) return false;
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.blocks.x;
  config.gridDimY = grid.blocks.y;
  config.gridDimZ = grid.blocks.z;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = kernel.instance->shape.shared_bytes + grid.shared_bytes;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = grid.early ? 1 : 0;
  return launch(&config, kernel.function, arguments, nullptr) == CUDA_SUCCESS;
}

}  // namespace

// If the driver cannot launch it (after a reset of the device, say), the runtime looks it up again.
cudaError_t start_blocks(const Kernel& kernel, const Grid& grid, unsigned int threads,
                         void** arguments, cudaStream_t stream) {
  if (start_by_driver(kernel, grid, threads, arguments, stream)) return cudaSuccess;
  return start_by_runtime(kernel, grid, threads, arguments, stream);
}

}  // namespace flashcore::cuda::launch
