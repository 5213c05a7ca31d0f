// forward_fp8_sm89 as rows of the table of kernels.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// P as e4m3 rounds it; and as the sum of two e4m3 numbers.
std::vector<Kernel> kernels();

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
