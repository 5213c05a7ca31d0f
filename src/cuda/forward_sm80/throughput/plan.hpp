// The rows of forward_sm80_throughput in the table of kernels.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

std::vector<Kernel> forward_sm80_throughput_kernels();

// The one for fp16 and bf16, which computes what others of these types leave: unaligned pointers.
Kernel forward_sm80_throughput_kernel();

}  // namespace flashcore
