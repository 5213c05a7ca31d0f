// Identifies the code that a measurement ran, to check whether this build still has it.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// The machine code of a device function for one target (tools/machine_code.py).
struct DeviceFunction {
  std::string_view name;              // mangled
  int target = 0;                     // the compute capability that it was compiled for
  std::string_view compiler, digest;  // "nvcc 13.0.88", 16 hexadecimal digits
};
std::span<const DeviceFunction> device_functions();  // all functions of this build

// Identifies a CPU kernel: "source " and 16 hexadecimal digits of its sources (tools/fingerprint.py).
// Empty for other names. A config after the name is ignored: it runs the same code.
std::string_view cpu_fingerprint(std::string_view kernel);

// Identifies what a GPU launched, given mangled names: "nvcc 13.0.88 sm_90" and each function's
// digest. Empty if there are no names, or if one of them has no code for that compute capability.
std::string code_fingerprint(const std::set<std::string>& launched, int compute_capability,
                             std::span<const DeviceFunction> functions = device_functions());

// cpu_fingerprint() or code_fingerprint(), depending on the local device that the kernel ran on.
std::string fingerprint_of(std::string_view kernel, Device device,
                           const std::set<std::string>& launched);

// Returns whether this build has the measured code: for a CPU kernel the same sources, otherwise a
// function with each digest, whatever its name is now.
bool is_current(std::string_view kernel, std::string_view fingerprint,
                std::span<const DeviceFunction> functions = device_functions());

}  // namespace flashcore
