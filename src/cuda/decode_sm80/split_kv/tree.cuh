// Tree masks of speculative decoding: which keys of a tile the bits of a query allow
// (problem/tree_mask.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/decode_sm80/split_kv/params.hpp"
#include "cuda/decode_sm80/split_kv/walk.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

// Of a row of words: keys before the first word are not concerned, those past the last are removed.
__device__ __forceinline__ uint32_t tree_word(const TreeBits& tree, int64_t row, int64_t word) {
  if (word < 0) return ~uint32_t{0};
  if (word >= tree.words) return 0;
  return static_cast<uint32_t>(__ldg(tree.data + (row + word * tree.word)));
}

// Bit c: whether `query` of the unit's entry may see key + c, for c < 32.
__device__ __forceinline__ uint32_t tree_bits(const TreeBits& tree, const Unit& unit, int query,
                                              int key) {
  const int64_t bit = key - unit.at.entry.offset;
  const int64_t word = bit >> 5;
  const int64_t row = unit.batch * tree.batch + (int64_t{unit.at.entry.q_row} + query) * tree.query;
  const uint64_t low = tree_word(tree, row, word), high = tree_word(tree, row, word + 1);
  return static_cast<uint32_t>((low | high << 32) >> (bit & 31));
}

// Removes what the bits do not allow from a lane's row of a slot. Bit 0: the lane's first column.
template <int kProducts>
__device__ __forceinline__ void mask_by_bits(float (&s)[kProducts][4], int slot, uint32_t bits) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if ((bits >> (8 * n + e) & 1) == 0) s[n][2 * slot + e] = attention::kNoKey;
    }
  }
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
