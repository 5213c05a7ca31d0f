// What forward_sm90_throughput computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

Supports supports();

// What the kernel for keys and values in pages supports.
Supports paged_supports();

// What the kernel with biases, masks and ALiBi supports.
Supports options_supports();

}  // namespace flashcore::cuda::forward_sm90::throughput
