// What a kernel of this build was made of, for tables of measurements. In every build;
// plan/fingerprints.hpp has the machine code, for evidence, in those that measure.
#pragma once

#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore {

// "source " and 16 hexadecimal digits, without comments and white space.
std::string_view source_fingerprint(const Kernel& kernel);

// "GCC 12.2.0", or for a CUDA kernel "nvcc 13.0.88".
std::string_view compiler_of(const Kernel& kernel);

}  // namespace flashcore
