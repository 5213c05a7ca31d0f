// forward_fp8_sm89 as rows of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// With P as e4m3 rounds it, and with P as the sum of two e4m3 numbers.
std::vector<Variant> variants();

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
