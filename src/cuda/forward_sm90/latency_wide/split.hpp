// Assigns the block's KV tiles to warpgroups. constexpr:
// kernels and host tests use the same function.
//
//   tiles of the cluster's 128 queries   begin ............................ end
//   warpgroup `group` of both blocks     every other tile, from begin + group on: 0 .. count
//   those that a block's 64 queries see  first .. last of them, contiguous
#pragma once

#include <algorithm>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm90/latency_wide/config.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

using attention::BandLimits, attention::TileRange;
using attention::latency::tiles_of;

struct OwnTiles {
  int first = 0, last = 0;

  constexpr int size() const { return last - first; }
};

// span: the tiles that the block's queries see.
constexpr OwnTiles own_tiles(const TileRange& span, const TileRange& cluster, int group) {
  if (span.empty()) return {};
  return {tiles_of(span.begin - cluster.begin, group, kGroups),
          tiles_of(span.end - cluster.begin, group, kGroups)};
}

}  // namespace flashcore::cuda::forward_sm90::latency_wide
