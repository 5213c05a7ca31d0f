// Tree masks of speculative decoding: the keys of a tile
// that a query's bits allow (problem/tree_mask.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/entry.hpp"

namespace flashcore::cuda::attention::decode {

// Returns a word of a row: keys before the first word are allowed, those past the last are removed.
__device__ __forceinline__ uint32_t tree_word(const TreeBits& tree, int64_t row, int64_t word) {
  if (word < 0) return ~uint32_t{0};
  if (word >= tree.words) return 0;
  return static_cast<uint32_t>(__ldg(tree.data + (row + word * tree.word)));
}

// Bit c: whether `query` of sequence `batch` may see key + c, for c < 32.
__device__ __forceinline__ uint32_t tree_bits(const TreeBits& tree, const Entry& entry, int batch,
                                              int query, int key) {
  const int64_t bit = key - entry.offset;
  const int64_t word = bit >> 5;
  const int64_t row = batch * tree.batch + (int64_t{entry.q_row} + query) * tree.query;
  const uint64_t low = tree_word(tree, row, word), high = tree_word(tree, row, word + 1);
  return static_cast<uint32_t>((low | high << 32) >> (bit & 31));
}

}  // namespace flashcore::cuda::attention::decode
