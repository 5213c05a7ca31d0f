// The parameters of one launch of forward_fp8_sm89.
#pragma once

#include "cuda/attention/fp8/params.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

struct Params : attention::fp8::OptionParams {
  bool by_rows;    // all rows one by one (attention/fp8/exact_rows.cuh): unaligned tensors
  float cap;       // in natural units, finite times log2(e); 0: no cap
  float cap_log2;  // in units of log2
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
