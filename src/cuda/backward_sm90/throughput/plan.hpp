// backward_sm90 as rows of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

Kernel kernel();

// backward_sm90_split: a cluster of blocks per tile, for problems with few tiles (split/).
Kernel split_kernel();

}  // namespace flashcore::cuda::backward_sm90::throughput
