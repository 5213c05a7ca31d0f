// What forward_sm80_latency computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_sm80::latency {

Supports supports();

}  // namespace flashcore::cuda::forward_sm80::latency
