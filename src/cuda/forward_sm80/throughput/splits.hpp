// How the keys of a split problem are cut: few queries against long keys fill a GPU only when
// several blocks share the keys of a query. A second kernel (combine.cu) joins what they find.
//
//   keys    | split 0 | split 1 | ... | last, shorter |        a split is a whole number of tiles
//
// Where a split begins depends on its own entry's keys and on nothing else: not on the batch, its
// longest entry, the heads or the GPU. So a row's bits do not either. A launch has as many splits
// as any entry may want; those that an entry does not have end at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore::cuda::forward_sm80::throughput {

inline constexpr int64_t kMostSplits = 64;  // where the splits are not the smallest
inline constexpr int64_t kFewKeys = 512;    // up to which they are

// Keys of a split of an entry with so many; a multiple of every tile's.
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

// Splits of an entry with at most so many keys: shorter ones may have more of them. At least two,
// so that every entry's results are joined.
constexpr int64_t most_splits(int64_t seqlen_kv) {
  if (seqlen_kv > 256 * kMostSplits) return kMostSplits;
  return std::max({int64_t{2}, split_count(std::min(seqlen_kv, kFewKeys)), split_count(seqlen_kv)});
}

// Partial results of `rows` queries: a reference, a sum and head_dim_v outputs each, in fp32.
constexpr int64_t split_workspace_bytes(int64_t rows, int64_t splits, int64_t head_dim_v) {
  return rows * splits * 4 * (2 + head_dim_v);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
