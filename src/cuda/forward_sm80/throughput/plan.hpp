// forward_sm80_throughput as a row of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The first is the one for fp16 and bf16.
std::vector<Variant> variants();

}  // namespace flashcore::cuda::forward_sm80::throughput
