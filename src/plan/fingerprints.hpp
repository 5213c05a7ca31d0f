// What the kernels of this build are known by, so that a measurement says what it measured.
#pragma once

#include <string_view>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// Of a kernel of the table on a GPU of that compute capability: "nvcc 13.0.88 sm_90 " and 16
// hexadecimal digits of its machine code and launches (tools/machine_code.py). Of a CPU kernel,
// with 0: "source " and 16 digits of its sources (tools/fingerprint.py). Empty for a name that is
// no kernel's, and for a GPU that this build has no code of the kernel for. A config after the name
// is of the same code.
std::string_view kernel_fingerprint(std::string_view kernel, int compute_capability);

// On a device of this machine.
std::string_view kernel_fingerprint(std::string_view kernel, Device device);

}  // namespace flashcore
