// The rows of forward_sm90 in the table of kernels.
#pragma once

#include <vector>

#include "dispatch/kernels.hpp"

namespace flashcore {

std::vector<Kernel> forward_sm90_kernels();

// The one that takes what it computes by itself.
Kernel forward_sm90_kernel();

}  // namespace flashcore
