// forward_sm90_latency:wide as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

Variant variant();

}  // namespace flashcore::cuda::forward_sm90::latency_wide
