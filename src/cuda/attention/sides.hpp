// The band from the view of keys. constexpr: shared by kernels and host tests.
#pragma once

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::attention {

// A visible pair has key - query in [low, high], so query - key in [-high, -low]. tile_range
// and visible_columns then return the queries of a KV tile; len_q replaces len_kv.
constexpr BandLimits seen_from_keys(const BandLimits& limits, int len_q) {
  return {-limits.high, -limits.low, len_q};
}

}  // namespace flashcore::cuda::attention
