// Removes what a row does not see of a tile of scores, by selection: what a removed score was, NaN
// included, does not matter. Scores are Tensor Core accumulators: softmax.cuh has their layout.
#pragma once

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/units.hpp"

namespace flashcore::cuda::attention {

// Which ends of what is seen may lie in the tile.
enum class Ends { both, begin, end };

// The column of element e of product n, counted from a lane's first, where keys are in order.
struct PlainColumns {
  constexpr int operator()(int n, int e) const { return 8 * n + e; }
};

// A lane's row of a slot, products kBegin to kEnd. seen: counted from the lane's first column.
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

// All of a lane's row of a slot.
template <Ends kEnds = Ends::both, int kProducts, class ColumnOf = PlainColumns>
__device__ __forceinline__ void mask_row(float (&s)[kProducts][4], int slot, ColumnRange seen,
                                         ColumnOf column_of = {}) {
  mask_row<0, kProducts, kEnds>(s, slot, seen, column_of);
}

}  // namespace flashcore::cuda::attention
