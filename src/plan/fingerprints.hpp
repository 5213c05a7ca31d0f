// What code a measurement ran, so that it can be told whether this build still has it.
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
std::span<const DeviceFunction> device_functions();  // of this build

// Of a CPU kernel: "source " and 16 hexadecimal digits of its sources (tools/fingerprint.py). Empty
// for other names. A config after the name is of the same code.
std::string_view cpu_fingerprint(std::string_view kernel);

// Of what a GPU launched, by mangled names: "nvcc 13.0.88 sm_90" and the digest of each function.
// Empty where there are no names, or no code of one of them for that compute capability.
std::string code_fingerprint(const std::set<std::string>& launched, int compute_capability,
                             std::span<const DeviceFunction> functions = device_functions());

// The one or the other, by the device of this machine that a kernel ran on.
std::string fingerprint_of(std::string_view kernel, Device device,
                           const std::set<std::string>& launched);

// Whether this build has the code that was measured: of a CPU kernel these sources, otherwise a
// function of each digest, whatever it is called now.
bool is_current(std::string_view kernel, std::string_view fingerprint,
                std::span<const DeviceFunction> functions = device_functions());

}  // namespace flashcore
