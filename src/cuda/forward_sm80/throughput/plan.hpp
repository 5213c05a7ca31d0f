// forward_sm80_throughput as rows of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The first kernel is the one for fp16 and bf16.
std::vector<Kernel> kernels();

// The kernel for keys and values in a cache, paged or left-padded.
Kernel paged_kernel();

}  // namespace flashcore::cuda::forward_sm80::throughput
