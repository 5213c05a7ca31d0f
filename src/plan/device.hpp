// The devices of this machine, as the dispatcher sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "tuning/gpu.hpp"

namespace flashcore {

DeviceInfo cpu_device();

// Empty without a CUDA build, a driver or a GPU. Defined in device_cuda.cpp, in
// device_no_cuda.cpp for builds without CUDA, and in the simulator (sim/runtime/devices.cpp),
// whose GPUs are of kind sim.
std::vector<DeviceInfo> cuda_devices();

const char* name_of(DeviceKind kind);

// Returns the device that a caller asks for, or why it is not available.
Result<DeviceInfo> find_device(const Device& device);

// Clock rates that DeviceInfo leaves out, for a GPU of cuda_devices(); unknown for any other device.
tuning::DeviceSpeed device_speed(const DeviceInfo& device);

// The seed of the simulator's choices where a real GPU guarantees no order; the same seed gives the
// same run. None in builds without the simulator, where setting it has no effect.
std::optional<uint64_t> simulator_seed();
void seed_simulator(uint64_t seed);

}  // namespace flashcore
