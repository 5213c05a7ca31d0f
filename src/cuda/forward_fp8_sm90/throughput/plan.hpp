// forward_fp8_sm90 as a row of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// In tiles of 192 x 64, in others, by name with P as the sum of two e4m3 numbers, and with options.
std::vector<Variant> variants();

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
