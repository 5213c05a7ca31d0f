// Masks the part of a tile of scores that a row does not see, by selection: the value of a removed
// score, even NaN, does not matter. Scores are Tensor Core accumulators: softmax.cuh has their layout.
#pragma once

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/units.hpp"

namespace flashcore::cuda::attention {

// The ends of the visible range that may lie in the tile.
enum class Ends { both, begin, end };

// The column of element e of product n, relative to a lane's first, for keys in order.
struct PlainColumns {
  constexpr int operator()(int n, int e) const { return 8 * n + e; }
};

// Masks a lane's row of a slot, products kBegin to kEnd. seen: relative to the lane's first column.
template <int kBegin, int kEnd, Ends kEnds = Ends::both, int kProducts,
          class ColumnOf = PlainColumns>
__device__ __forceinline__ void mask_row(float (&s)[kProducts][4], int slot, ColumnRange seen,
                                         ColumnOf column_of = {}) {
#pragma unroll
  for (int n = kBegin; n < kEnd; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = column_of(n, e);
      const bool early = kEnds != Ends::end && column < seen.begin;
      const bool late = kEnds != Ends::begin && column >= seen.end;
      if (early || late) s[n][2 * slot + e] = kNoKey;
    }
  }
}

// Masks all products of a lane's row of a slot.
template <Ends kEnds = Ends::both, int kProducts, class ColumnOf = PlainColumns>
__device__ __forceinline__ void mask_row(float (&s)[kProducts][4], int slot, ColumnRange seen,
                                         ColumnOf column_of = {}) {
  mask_row<0, kProducts, kEnds>(s, slot, seen, column_of);
}

}  // namespace flashcore::cuda::attention
