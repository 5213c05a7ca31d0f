// A sequence's work for a decode kernel: the keys that its queries see, in granules
// that are never cut, and its rows. constexpr: shared by kernels, plans and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::attention::decode {

inline constexpr int kGranule = 128;  // keys

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Keys [begin, end). Rows are the queries of all heads of a group; row = query * group + head.
struct SeenKeys {
  int begin, end, rows;

  constexpr int granules() const {
    return static_cast<int>((static_cast<unsigned>(end - begin) + kGranule - 1) / kGranule);
  }
};

constexpr SeenKeys seen_keys(const Entry& entry, const Band& band, int group) {
  const BandLimits limits = band_limits(band.left, band.right, entry.offset, entry.len_kv);
  if (entry.len_q <= 0) return {0, 0, 0};
  const int begin = std::max(0, limits.low);
  const int end = std::min(entry.len_kv, entry.len_q + limits.high);
  if (end <= begin) return {0, 0, 0};
  return {begin, end,
          static_cast<int>(static_cast<unsigned>(entry.len_q) * static_cast<unsigned>(group))};
}

}  // namespace flashcore::cuda::attention::decode
