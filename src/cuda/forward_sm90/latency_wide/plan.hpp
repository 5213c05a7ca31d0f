// The row of forward_sm90_latency_wide in the table of kernels.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore {

Kernel forward_sm90_latency_wide_kernel();

}  // namespace flashcore
