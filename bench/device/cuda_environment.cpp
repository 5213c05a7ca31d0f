#include "bench/device/cuda_environment.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <nlohmann/json.hpp>

namespace flashcore::bench {
namespace {

// NVIDIA's management library, part of the driver; its absence is not an error.
class Nvml {
 public:
  explicit Nvml(const char* bus_id) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    const auto by_bus = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (init == nullptr || by_bus == nullptr || init() != 0) return;
    if (by_bus(bus_id, &device_) != 0) device_ = nullptr;
  }

  std::string driver() const {
    const auto version = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    std::array<char, 96> text{};
    if (version == nullptr || version(text.data(), text.size()) != 0) return {};
    return text.data();
  }

  // Returns 0 if it is not known.
  unsigned clock_mhz(const char* function, int which) const {
    const auto read = find<int (*)(void*, int, unsigned*)>(function);
    unsigned mhz = 0;
    if (device_ == nullptr || read == nullptr || read(device_, which, &mhz) != 0) return 0;
    return mhz;
  }
  double watts(const char* function) const {
    const auto read = find<int (*)(void*, unsigned*)>(function);
    unsigned milliwatts = 0;
    if (device_ == nullptr || read == nullptr || read(device_, &milliwatts) != 0) return 0;
    return milliwatts * 1e-3;
  }

 private:
  template <class Function>
  Function find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string bus_id_of(int32_t index) {
  std::array<char, 32> text{};
  (void)cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index);
  return text.data();
}

constexpr int kSmClock = 1, kMemoryClock = 2;

}  // namespace

nlohmann::ordered_json cuda_state(int32_t index) {
  static const Nvml nvml(bus_id_of(index).c_str());  // first requested device: one per process
  return {{"sm_clock_mhz", nvml.clock_mhz("nvmlDeviceGetClockInfo", kSmClock)},
          {"power_watts", nvml.watts("nvmlDeviceGetPowerUsage")}};
}

nlohmann::ordered_json cuda_environment(int32_t index) {
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  (void)cudaGetDeviceProperties(&properties, index);
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const Nvml nvml(bus_id_of(index).c_str());
  return {{"name", properties.name},
          {"compute_capability", 10 * properties.major + properties.minor},
          {"multiprocessors", properties.multiProcessorCount},
          {"memory_bytes", properties.totalGlobalMem},
          {"l2_bytes", properties.l2CacheSize},
          {"shared_memory_per_block", properties.sharedMemPerBlockOptin},
          {"driver", nvml.driver()},
          {"driver_cuda", version_text(driver)},
          {"toolkit", version_text(CUDART_VERSION)},
          {"runtime", version_text(runtime)},
          {"sm_clock_max_mhz", nvml.clock_mhz("nvmlDeviceGetMaxClockInfo", kSmClock)},
          {"memory_clock_max_mhz", nvml.clock_mhz("nvmlDeviceGetMaxClockInfo", kMemoryClock)},
          {"power_limit_watts", nvml.watts("nvmlDeviceGetEnforcedPowerLimit")}};
}

}  // namespace flashcore::bench
