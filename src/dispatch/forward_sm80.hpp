// The rows of forward_sm80 in the table of kernels.
#pragma once

#include <vector>

#include "dispatch/kernels.hpp"

namespace flashcore {

std::vector<Kernel> forward_sm80_kernels();

// The one for fp16 and bf16, which computes what others of these types leave: unaligned pointers.
Kernel forward_sm80_kernel();

}  // namespace flashcore
