// What a build without CUDA has instead of GPUs and their kernels.
#include "plan/cuda_kernels.hpp"
#include "plan/device.hpp"

namespace flashcore {

std::vector<DeviceInfo> cuda_devices() { return {}; }
tuning::DeviceSpeed device_speed(const DeviceInfo& /*device*/) { return {}; }
std::optional<uint64_t> simulator_seed() { return std::nullopt; }
void seed_simulator(uint64_t /*seed*/) {}
std::vector<Kernel> cuda_kernels() { return {}; }

}  // namespace flashcore
