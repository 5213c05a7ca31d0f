// Splits of a problem's keys: few queries against long keys fill a GPU only if several
// blocks share a query's keys. A second kernel (combine.cuh) combines their results.
//
//   keys    | split 0 | split 1 | ... | last, shorter |        a split is a whole number of tiles
//
// The boundaries of a sequence's splits depend only on its own keys: not on the batch, its longest
// sequence, the heads or the GPU. Therefore a row's bits do not depend on these either. A launch
// has as many splits as any sequence may need; splits that a sequence does not have exit at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore::cuda::forward_sm80::throughput {

inline constexpr int64_t kMostSplits = 64;  // unless splits have the smallest size
inline constexpr int64_t kFewKeys = 512;    // up to here, they have the smallest size

// Returns the keys per split of a sequence with len_kv keys; a multiple of every tile's.
constexpr int64_t split_keys(int64_t len_kv) {
  if (len_kv <= kFewKeys) return 64;
  int64_t keys = 256;
  while (keys * kMostSplits < len_kv) keys *= 2;
  return keys;
}

constexpr int64_t split_count(int64_t len_kv) {
  const int64_t keys = split_keys(len_kv);
  return len_kv <= keys ? 1 : (len_kv + keys - 1) / keys;
}

// Returns the largest number of splits of a sequence with at most seqlen_kv keys: shorter
// ones may have more. At least two, so that every sequence's results are combined.
constexpr int64_t most_splits(int64_t seqlen_kv) {
  if (seqlen_kv > 256 * kMostSplits) return kMostSplits;
  return std::max({int64_t{2}, split_count(std::min(seqlen_kv, kFewKeys)), split_count(seqlen_kv)});
}

// Partial results of `rows` queries: a reference, a sum and head_dim_v outputs each, in fp32.
constexpr int64_t split_workspace_bytes(int64_t rows, int64_t splits, int64_t head_dim_v) {
  return rows * splits * 4 * (2 + head_dim_v);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
