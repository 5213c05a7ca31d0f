// Which of its block's tiles of keys a warpgroup visits. constexpr: kernels and host tests use the
// same function.
//
//   tiles of the block's 128 queries    begin ............................ end
//   block `rank` of the cluster         every other of them, from begin + rank on: 0 .. count
//   a warpgroup's 64 queries            first .. last of those, neighbours
#pragma once

#include <algorithm>

#include "cuda/forward_medium_sm90/config.hpp"
#include "cuda/forward_small_sm90/split.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::BandLimits, forward_small_sm90::TileSpan;
using forward_small_sm90::tile_span, forward_small_sm90::tiles_of;

struct OwnTiles {
  int first = 0, last = 0;
  TileSpan span;  // what the warpgroup's queries visit
};

// Of the warpgroup whose queries begin at first_query.
constexpr OwnTiles own_tiles(const BandLimits& limits, const TileSpan& block, int first_query,
                             int len_q, int rank) {
  const TileSpan span = tile_span(limits, first_query, std::min(first_query + kGroupQ, len_q));
  if (span.size() == 0) return {};
  return {tiles_of(span.begin - block.begin, rank, kRanks),
          tiles_of(span.end - block.begin, rank, kRanks), span};
}

}  // namespace flashcore::cuda::forward_medium_sm90
