// What the kernels of Hopper share that compute one tile of queries and whose copies go by tensor maps.
#pragma once

#include <cuda.h>

#include "cuda/attention/latency/params.hpp"

namespace flashcore::cuda::forward_sm90 {

using attention::BandLimits;
using attention::latency::Cover, attention::latency::Params;

struct Maps {
  CUtensorMap q, k, v;
};

}  // namespace flashcore::cuda::forward_sm90
