// The launches of forward_fp8_sm90, and what they are told.
//
//   transpose       V^T into the workspace, and 0 into amax_o and amax_s, where they are wanted
//   an instance     attention; it starts while the values are still being transposed
//
//   clear_largest   only those zeros, where V^T is not made
//   exact           instead of the instance, of tensors that do not begin at multiples of 16 bytes
#pragma once

#include <cuda.h>

#include "cuda/attention/fp8/params.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

struct Maps {
  CUtensorMap q, k, vt;
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
