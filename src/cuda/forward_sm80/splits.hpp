// How the keys of a split problem are cut: few queries against long keys fill a GPU only when
// several blocks share the keys of a query. A second kernel (combine.cu) joins what they find.
//
//   keys    | split 0 | split 1 | ... | last, shorter |        a split is a whole number of tiles
//
// Where a split begins depends on the longest key sequence that the problem allows and on nothing
// else: not on the batch, the heads or the GPU. So a row's bits do not either.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm80 {

inline constexpr int64_t kMostSplits = 64;  // where the splits are not the smallest

// Keys of a split; a multiple of every tile's.
constexpr int64_t split_keys(int64_t seqlen_kv) {
  if (seqlen_kv <= 512) return 64;
  int64_t keys = 256;
  while (keys * kMostSplits < seqlen_kv) keys *= 2;
  return keys;
}

constexpr int64_t split_count(int64_t seqlen_kv) {
  const int64_t keys = split_keys(seqlen_kv);
  return seqlen_kv <= keys ? 1 : (seqlen_kv + keys - 1) / keys;
}

// Partial results of `rows` queries: a reference, a sum and head_dim_v outputs each, in fp32.
constexpr int64_t split_workspace_bytes(int64_t rows, int64_t splits, int64_t head_dim_v) {
  return splits <= 1 ? 0 : rows * splits * 4 * (2 + head_dim_v);
}

}  // namespace flashcore::cuda::forward_sm80
