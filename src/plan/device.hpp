// The devices of this machine, as the dispatcher sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "tuning/gpu.hpp"

namespace flashcore {

DeviceInfo cpu_device();

// Empty without a CUDA build, a driver or a GPU. Three definitions: device_cuda.cpp,
// device_no_cuda.cpp for builds without CUDA, and the simulator's (sim/runtime/devices.cpp), whose
// GPUs are of kind sim.
std::vector<DeviceInfo> cuda_devices();

const char* name_of(DeviceKind kind);

// A device that a caller asks for, or why there is none.
Result<DeviceInfo> find_device(const Device& device);

// What DeviceInfo leaves out, of a GPU of cuda_devices(); of any other device nothing is known.
tuning::DeviceSpeed device_speed(const DeviceInfo& device);

// What a simulated GPU does where a real one promises nothing, as a number: the same one gives the
// same run. None in builds without the simulator, where setting it does nothing.
std::optional<uint64_t> simulator_seed();
void seed_simulator(uint64_t seed);

}  // namespace flashcore
