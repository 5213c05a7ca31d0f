// V's transposition on a GPU.
#pragma once

#include "flashcore/flashcore.hpp"
#include "problem/transpose_v.hpp"

namespace flashcore::cuda::convert::transpose_v {

// Pointers are the GPU's, checked as far as the host can.
Status run(const TransposeProblem& p, const void* v, void* v_out, const DeviceInfo& device,
           Stream stream);

}  // namespace flashcore::cuda::convert::transpose_v
