// What forward_fp8_sm89 computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

Supports supports();

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
