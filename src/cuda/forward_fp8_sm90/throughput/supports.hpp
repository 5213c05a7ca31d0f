// What forward_fp8_sm90 computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

Supports supports();

// What forward_fp8_sm90:192x64 and forward_fp8_sm90:options support.
Supports supports_192x64();
Supports option_supports();

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
