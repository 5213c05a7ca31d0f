// forward_fp8_sm90 with options as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

Variant options_variant();

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
