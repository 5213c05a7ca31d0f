// forward_fp8_sm90 as rows of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// With P as e4m3 rounds it and, run by name, with P as the sum of two e4m3 numbers.
std::vector<Kernel> kernels();

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
