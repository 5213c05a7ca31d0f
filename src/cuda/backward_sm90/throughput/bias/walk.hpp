// The tiles of pairs that a tile of dBias sums, in a fixed order: for each sequence, head and block of queries that
// share it, the keys that share it. constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/element_type.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/backward_sm90/common/options.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

inline constexpr int kBiasTile = 128;  // queries and keys of a tile of dBias

// dBias; its extent is 1 in each dimension that is summed.
struct BiasTarget {
  void* data;
  int64_t batch, head, query, key;
  attention::ElementType type;
  int extents[4];
  bool chunks;  // of 16 bits, in rows of aligned 16-byte chunks

  constexpr bool sums(int dimension) const { return extents[dimension] == 1; }
};

// Its own place; 0 in each dimension that is summed.
struct BiasItem {
  int batch, head, q_tile, k_tile;
};

template <class P>
constexpr BiasItem bias_item(const P& p, uint32_t number) {
  BiasItem item{};
  const auto take = [&number](int& place, bool sums, int count) {
    if (sums) return;
    place = static_cast<int>(number % static_cast<uint32_t>(count));
    number /= static_cast<uint32_t>(count);
  };
  take(item.k_tile, p.d_bias.sums(3), p.k_tiles);
  take(item.q_tile, p.d_bias.sums(2), p.q_tiles);
  take(item.head, p.d_bias.sums(1), p.heads_q);
  take(item.batch, p.d_bias.sums(0), p.batch);
  return item;
}

template <class P>
struct BiasWalk {
  const P& p;
  BiasItem item;
  int batch, head, q_tile, k_tile = 0, k_end = 0;
  attention::TileRange range = {};  // of the keys that the block of queries sees

  constexpr BiasWalk(const P& params, const BiasItem& of)
      : p(params), item(of), batch(of.batch), head(of.head), q_tile(of.q_tile) {
    enter();
    settle();
  }

  constexpr bool has_ended() const {
    return batch >= (p.d_bias.sums(0) ? p.batch : item.batch + 1);
  }
  constexpr void advance() {
    ++k_tile;
    settle();
  }

 private:
  constexpr void enter() {
    const EntryRows rows = entry_rows(p, batch, 1);
    const int first = q_tile * kBiasTile;
    range = attention::tile_range(rows.limits, rows.len_q, first, first + kBiasTile, kBiasTile);
    const bool all = p.d_bias.sums(3);
    k_tile = std::max(range.begin, all ? 0 : item.k_tile);
    k_end = std::min(range.end, all ? p.k_tiles : item.k_tile + 1);
  }
  // To the next tile with pairs.
  constexpr void settle() {
    while (k_tile >= k_end) {
      if (++q_tile >= (p.d_bias.sums(2) ? p.q_tiles : item.q_tile + 1)) {
        q_tile = item.q_tile;
        if (++head >= (p.d_bias.sums(1) ? p.heads_q : item.head + 1)) {
          head = item.head;
          ++batch;
          if (has_ended()) return;
        }
      }
      enter();
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
