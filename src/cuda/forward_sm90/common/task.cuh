// Imports names of attention/latency into this folder's latency kernels.
#pragma once

#include "cuda/attention/latency/exact.cuh"
#include "cuda/attention/latency/task.cuh"

namespace flashcore::cuda::forward_sm90 {

using attention::BandLimits, attention::TileRange;
using attention::kLn2, attention::kNoKey;
using attention::latency::Early, attention::latency::read_early;
using attention::latency::find_task, attention::latency::Task;
using attention::latency::store_exactly, attention::latency::tiles_of;
using attention::latency::TileBounds, attention::latency::Params;

}  // namespace flashcore::cuda::forward_sm90
