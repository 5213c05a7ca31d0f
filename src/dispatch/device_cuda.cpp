#include <cuda_runtime_api.h>

#include "dispatch/device.hpp"

namespace flashcore {
namespace {

// Without a driver or a GPU the runtime reports an error, which is a normal case here.
std::vector<DeviceInfo> find_devices() {
  std::vector<DeviceInfo> found;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // not the caller's
    return found;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      (void)cudaGetLastError();
      continue;
    }
    DeviceInfo& info = found.emplace_back();
    info.device = {DeviceKind::cuda, index};
    info.name = properties.name;
    info.compute_capability = 10 * properties.major + properties.minor;
    info.multiprocessors = properties.multiProcessorCount;
    info.shared_memory_a_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  }
  return found;
}

}  // namespace

std::vector<DeviceInfo> cuda_devices() {
  static const std::vector<DeviceInfo> devices = find_devices();
  return devices;
}

}  // namespace flashcore
