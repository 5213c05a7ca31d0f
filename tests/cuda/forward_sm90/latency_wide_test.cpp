// What of forward_sm90_latency:wide needs no GPU: which tiles of keys its warpgroups visit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "cuda/forward_sm90/latency_wide/split.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {
namespace {

using attention::latency::kBlockKv;

struct Drawn {
  int len_q, len_kv, offset, left, right;
};

void check(const Drawn& d, int first) {
  Sequence s;
  s.len_q = s.rows_q = d.len_q;
  s.len_kv = d.len_kv;
  s.offset = d.offset;
  const BandLimits limits = attention::band_limits(s, Band{d.left, d.right});
  const TileRange cluster =
      attention::tile_range(limits, d.len_q, first, first + kBlockQ, kBlockKv);
  for (int rank = 0; rank < kRanks; ++rank) {
    const int query = first + rank * kRankQ;
    const TileRange wanted =
        attention::tile_range(limits, d.len_q, query, query + kRankQ, kBlockKv);
    std::set<int> visited;
    for (int group = 0; group < kGroups; ++group) {
      const OwnTiles own = own_tiles(wanted, cluster, group);
      ASSERT_GE(own.first, 0);
      ASSERT_LE(own.first, own.last);
      ASSERT_LE(own.last, tiles_of(cluster.size(), group, kGroups)) << "tiles that nobody copies";
      for (int i = own.first; i < own.last; ++i) {
        const int tile = cluster.begin + group + i * kGroups;
        ASSERT_TRUE(visited.insert(tile).second);
        ASSERT_TRUE(tile >= wanted.begin && tile < wanted.end) << "tile " << tile;
      }
    }
    ASSERT_EQ(static_cast<int>(visited.size()), wanted.size());
  }
}

TEST(ForwardSm90LatencyWideSplit, WarpgroupsVisitWhatTheirQueriesSee) {
  for (const int len_q : {1, 64, 100, 129, 300}) {
    for (const int len_kv : {0, 1, 64, 150, 500}) {
      for (const int offset : {-200, -64, -1, 0, 1, 63, 300}) {
        for (const int left : {-1, 0, 70}) {
          for (const int right : {-1, 0, 70}) {
            for (int first = 0; first < len_q; first += kBlockQ) {
              check({len_q, len_kv, offset, left, right}, first);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm90::latency_wide
