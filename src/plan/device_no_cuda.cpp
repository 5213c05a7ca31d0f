// What a build without CUDA has instead of GPUs and their kernels.
#include "plan/cuda_kernels.hpp"
#include "plan/device.hpp"

namespace flashcore {

std::vector<DeviceInfo> cuda_devices() { return {}; }
tuning::DeviceSpeed device_speed(const DeviceInfo& /*device*/) { return {}; }
std::vector<Kernel> cuda_kernels() { return {}; }

}  // namespace flashcore
