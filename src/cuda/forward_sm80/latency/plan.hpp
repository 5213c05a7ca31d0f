// forward_sm80_latency as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::latency {

Variant variant();

}  // namespace flashcore::cuda::forward_sm80::latency
