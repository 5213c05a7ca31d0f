// Hashes of each kernel's sources, for tables of measurements; in every build. Builds that measure
// also have plan/fingerprints.hpp, with machine code, for evidence.
#pragma once

#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore {

// Returns "source " and 16 hexadecimal digits. Comments and white space do not count.
std::string_view source_fingerprint(const Variant& variant);

// Returns "GCC 12.2.0", or for a CUDA kernel "nvcc 13.0.88".
std::string_view compiler_of(const Variant& variant);

}  // namespace flashcore
