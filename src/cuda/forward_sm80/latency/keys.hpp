// The keys that a block of forward_sm80_latency reads. constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm80/latency/config.hpp"

namespace flashcore::cuda::forward_sm80::latency {

// Begins at a multiple of attention::latency::kBlockKv.
struct KeySpan {
  int begin, end;
};

constexpr KeySpan key_span(const attention::TileRange& tiles, int len_kv) {
  return {tiles.begin * attention::latency::kBlockKv,
          std::min(tiles.end * attention::latency::kBlockKv, len_kv)};
}

// Returns the end of the span if all tiles are whole: then it begins at the first key.
constexpr int whole_end(const attention::BandLimits& limits, int first_query) {
  constexpr int kTile = attention::latency::kBlockKv;
  const int seen = std::max(0, std::min(limits.len_kv, first_query + kBlockQ + limits.high));
  return std::min((seen + kTile - 1) / kTile * kTile, limits.len_kv);
}

// Returns whether all query and KV tiles are full, and every query's keys begin in the first tile.
constexpr bool tiles_are_whole(const Config& config, const attention::BandLimits& limits,
                               int64_t seqlen_q) {
  return seqlen_q % kBlockQ == 0 && limits.len_kv % config.warp_keys == 0 &&
         seqlen_q + limits.low <= 0;
}

}  // namespace flashcore::cuda::forward_sm80::latency
