// The row of forward_sm80_latency in the table of kernels.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore {

Kernel forward_sm80_latency_kernel();

}  // namespace flashcore
