// backward_sm90 as a row of the table of kernels.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

Kernel kernel();

}  // namespace flashcore::cuda::backward_sm90::throughput
