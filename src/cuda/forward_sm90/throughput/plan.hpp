// The rows of forward_sm90_throughput in the table of kernels.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

std::vector<Kernel> forward_sm90_throughput_kernels();

// The one that takes what it computes by itself.
Kernel forward_sm90_throughput_kernel();

}  // namespace flashcore
