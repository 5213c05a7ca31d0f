// The driver's launch.
#include "cuda/host/driver_launch.hpp"

#include <cudaTypedefs.h>

#include "cuda/host/driver_entry.hpp"

namespace flashcore::cuda::host {
namespace {

cudaError_t launch_by_runtime(const void* kernel, const LaunchShape& shape, void** arguments,
                              cudaStream_t stream) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.early) {
    auto& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    auto& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
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
    CUlaunchAttribute attributes[2]{};
    CUlaunchConfig config{};
    config.gridDimX = shape.grid.x;
    config.gridDimY = shape.grid.y;
    config.gridDimZ = shape.grid.z;
    config.blockDimX = shape.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shape.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    if (shape.early) {
      CUlaunchAttribute& early = attributes[config.numAttrs++];
      early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      early.value.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
      CUlaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      cluster.value.clusterDim = {shape.cluster, 1, 1};
    }
    if (launch(&config, function, arguments, nullptr) == CUDA_SUCCESS) return cudaSuccess;
  }
  return launch_by_runtime(kernel, shape, arguments, stream);
}

}  // namespace flashcore::cuda::host
