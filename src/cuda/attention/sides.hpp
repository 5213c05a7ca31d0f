// The band as keys see it. constexpr: kernels and host tests use the same functions.
#pragma once

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::attention {

// A visible pair has key - query in [low, high], so query - key in [-high, -low]. tile_range and
// visible_columns then give the queries of a tile of keys; len_q takes the place of len_kv.
constexpr BandLimits seen_from_keys(const BandLimits& limits, int len_q) {
  return {-limits.high, -limits.low, len_q};
}

}  // namespace flashcore::cuda::attention
