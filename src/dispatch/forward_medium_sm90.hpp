// The row of forward_medium_sm90 in the table of kernels.
#pragma once

#include "dispatch/kernels.hpp"

namespace flashcore {

Kernel forward_medium_sm90_kernel();

}  // namespace flashcore
