#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "plan/device.hpp"

namespace flashcore {
namespace {

// Returns false if some GPU could not be queried. Without a driver or a GPU the runtime reports an
// error, which is a normal case here: the error is cleared, so that the caller does not find it.
bool find_devices(std::vector<DeviceInfo>& found) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  bool complete = true;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      (void)cudaGetLastError();
      complete = false;
      continue;
    }
    DeviceInfo& info = found.emplace_back();
    info.device = {DeviceKind::cuda, index};
    info.name = properties.name;
    info.compute_capability = 10 * properties.major + properties.minor;
    info.multiprocessors = properties.multiProcessorCount;
    info.shared_memory_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  }
  return complete;
}

// Returns 0 if the runtime does not know the attribute.
int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  (void)cudaGetLastError();
  return 0;
}

}  // namespace

tuning::DeviceSpeed device_speed(const DeviceInfo& device) {
  if (device.name.empty()) return {};
  const std::vector<DeviceInfo> found = cuda_devices();
  const bool is_there = std::any_of(found.begin(), found.end(), [&](const DeviceInfo& one) {
    return one.device.index == device.device.index && one.name == device.name &&
           one.multiprocessors == device.multiprocessors;
  });
  if (!is_there) return {};
  constexpr double kMhzOfKhz = 1e-3, kGbOfBytes = 1e-9, kHzOfKhz = 1e3;
  const int index = device.device.index;
  const double bus_bytes = attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8.0;
  // Two transfers per clock: double data rate.
  return {.sm_clock_mhz = kMhzOfKhz * attribute(cudaDevAttrClockRate, index),
          .memory_gb_s =
              kGbOfBytes * 2 * kHzOfKhz * attribute(cudaDevAttrMemoryClockRate, index) * bus_bytes};
}

std::vector<DeviceInfo> cuda_devices() {
  static std::mutex mutex;
  static std::optional<std::vector<DeviceInfo>> known;  // failures are not cached
  const std::lock_guard lock(mutex);
  if (known) return *known;
  std::vector<DeviceInfo> found;
  if (find_devices(found)) known = found;
  return found;
}

std::optional<uint64_t> simulator_seed() { return std::nullopt; }
void seed_simulator(uint64_t /*seed*/) {}

}  // namespace flashcore
