// The row of forward_small_sm80 in the table of kernels.
#pragma once

#include "dispatch/kernels.hpp"

namespace flashcore {

Kernel forward_small_sm80_kernel();

}  // namespace flashcore
