// forward_sm90_latency as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::latency {

Variant variant();

}  // namespace flashcore::cuda::forward_sm90::latency
