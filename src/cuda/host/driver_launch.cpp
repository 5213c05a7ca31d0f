// The driver's launch.
#include "cuda/host/driver_launch.hpp"

#include <cudaTypedefs.h>

#include "cuda/host/driver_entry.hpp"

namespace flashcore::cuda::host {
namespace {

cudaError_t launch_by_runtime(const void* kernel, const LaunchShape& shape, void** arguments,
                              cudaStream_t stream) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = shape.early ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace

cudaError_t find_function(cudaFunction_t& function, const void* kernel) {
  return cudaGetFuncBySymbol(&function, kernel);
}

cudaError_t launch_function(cudaFunction_t function, const void* kernel, const LaunchShape& shape,
                            void** arguments, cudaStream_t stream) {
  static DriverEntry<PFN_cuLaunchKernelEx_v11060> entry("cuLaunchKernelEx", 11060);
  PFN_cuLaunchKernelEx_v11060 launch = nullptr;
  if (entry.get(launch) == cudaSuccess) {
    CUlaunchAttribute early{};
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = shape.grid.x;
    config.gridDimY = shape.grid.y;
    config.gridDimZ = shape.grid.z;
    config.blockDimX = shape.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shape.shared_bytes;
    config.hStream = stream;
    config.attrs = &early;
    config.numAttrs = shape.early ? 1 : 0;
    if (launch(&config, function, arguments, nullptr) == CUDA_SUCCESS) return cudaSuccess;
  }
  return launch_by_runtime(kernel, shape, arguments, stream);
}

}  // namespace flashcore::cuda::host
