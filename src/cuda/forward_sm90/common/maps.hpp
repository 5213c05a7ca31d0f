// Names and tensor maps of the Hopper kernels whose blocks compute a single query tile.
#pragma once

#include <cuda.h>

#include "cuda/attention/latency/params.hpp"

namespace flashcore::cuda::forward_sm90 {

using attention::BandLimits;
using attention::latency::TileBounds, attention::latency::Params;

struct Maps {
  CUtensorMap q, k, v;
};

}  // namespace flashcore::cuda::forward_sm90
