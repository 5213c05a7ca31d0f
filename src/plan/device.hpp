// The devices of this machine, as the dispatcher sees them.
#pragma once

#include <vector>

#include "flashcore/flashcore.hpp"
#include "tuning/gpu.hpp"

namespace flashcore {

DeviceInfo cpu_device();

// Empty without a CUDA build, a driver or a GPU. Two definitions: device_cuda.cpp, and
// device_no_cuda.cpp for builds without CUDA.
std::vector<DeviceInfo> cuda_devices();

// What DeviceInfo leaves out, of a GPU of cuda_devices(); of any other device nothing is known.
tuning::DeviceSpeed device_speed(const DeviceInfo& device);

}  // namespace flashcore
