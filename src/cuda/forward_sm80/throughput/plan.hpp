// forward_sm80_throughput as rows of the table of kernels.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The first is the one for fp16 and bf16.
std::vector<Kernel> kernels();

// For keys and values in a cache: in pages, or padded on the left.
Kernel paged_kernel();

}  // namespace flashcore::cuda::forward_sm80::throughput
