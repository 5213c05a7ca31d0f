// The keys that a query sees, before mask and bias: one definition for every backend.
//
// constexpr: the host derives tile ranges from it, kernels mask with it, and tests check it
// against the definition.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore {

// Keys [begin, end); empty when end <= begin.
struct KeyRange {
  int64_t begin;
  int64_t end;

  constexpr bool empty() const { return end <= begin; }
  constexpr int64_t size() const { return empty() ? 0 : end - begin; }
  friend constexpr bool operator==(const KeyRange&, const KeyRange&) = default;
};

// The band of keys around the diagonal i + offset. A causal problem has right = min(right, 0).
struct Band {
  static constexpr int64_t kUnlimited = -1;
  int64_t left = kUnlimited;
  int64_t right = kUnlimited;

  constexpr bool unlimited() const { return left < 0 && right < 0; }
};

// One batch entry: the start of its rows in packed tensors, its lengths, and its diagonal.
struct Sequence {
  int64_t q_begin = 0;   // row of query 0 in a packed Q; 0 otherwise
  int64_t kv_begin = 0;  // row of key 0 in a packed K and V; 0 otherwise
  int64_t len_q = 0;     // queries in use; later rows see no key
  int64_t len_kv = 0;
  int64_t rows_q = 0;  // rows of O and LSE that belong to the entry, at least len_q
  int64_t offset = 0;  // query i is aligned with key i + offset
};

// The keys that query i sees: the existing keys of the band. Offsets and windows are at most 2^32
// in size (resolve checks that), so nothing here overflows.
constexpr KeyRange visible_keys(const Sequence& sequence, const Band& band, int64_t query) {
  if (query >= sequence.len_q) return {0, 0};
  const int64_t diagonal = query + sequence.offset;
  const int64_t begin = band.left < 0 ? 0 : std::max<int64_t>(0, diagonal - band.left);
  const int64_t end =
      band.right < 0 ? sequence.len_kv : std::min(sequence.len_kv, diagonal + band.right + 1);
  return end <= begin ? KeyRange{0, 0} : KeyRange{begin, end};
}

// The keys that any of queries [first, last) sees. Both ends move right with the query, so the
// result is also the hull.
constexpr KeyRange visible_keys(const Sequence& sequence, const Band& band, int64_t first,
                                int64_t last) {
  last = std::min(last, sequence.len_q);
  if (last <= first) return {0, 0};
  const int64_t begin =
      band.left < 0 ? 0 : std::max<int64_t>(0, first + sequence.offset - band.left);
  const int64_t end = band.right < 0
                          ? sequence.len_kv
                          : std::min(sequence.len_kv, last - 1 + sequence.offset + band.right + 1);
  return end <= begin ? KeyRange{0, 0} : KeyRange{begin, end};
}

// The keys that every one of queries [first, last) sees: tiles inside need no mask.
constexpr KeyRange common_keys(const Sequence& sequence, const Band& band, int64_t first,
                               int64_t last) {
  if (last <= first || last > sequence.len_q) return {0, 0};
  const KeyRange a = visible_keys(sequence, band, first);
  const KeyRange b = visible_keys(sequence, band, last - 1);
  if (a.empty() || b.empty()) return {0, 0};
  const KeyRange both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? KeyRange{0, 0} : both;
}

}  // namespace flashcore
