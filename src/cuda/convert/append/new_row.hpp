// Maps a new row to a row of the cache, for any lengths in
// device memory. constexpr: shared by the kernel and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/kv_cache.hpp"

namespace flashcore::cuda::convert::append {

struct NewRow {
  bool in_use = false;  // it is one of the sequence's new rows
  bool fits = false;    // the sequence's cache has a row for it
  int key = 0;          // its key, counted from the sequence's first
  int64_t position = 0;
  attention::CachedEntry entry{};
};

// Finds new row `row`, of the packed tensor or of sequence b.
constexpr NewRow find_new_row(const attention::ForwardParams& p, const attention::KvCacheParams& c,
                              int b, int row) {
  NewRow found;
  found.entry = attention::find_cached_entry(p, c, b);
  const int number = row - found.entry.entry.q_row;
  found.in_use = number >= 0 && number < found.entry.entry.len_q;
  if (!found.in_use) return found;
  int64_t room = p.seqlen_kv;
  if (c.flat) room = std::min(room, attention::listed_rows(c, b).rows);
  // Rows in use before, unclamped: rows past the cache leave no room for more.
  const int64_t before = p.seqlens_kv.at(b);
  const int64_t padding = c.leftpad.data == nullptr ? 0 : c.leftpad.at(b);
  found.fits = before >= 0 && padding >= 0 && padding <= before && before + number < room;
  found.position = before - padding + number;
  if (found.fits) found.key = static_cast<int>(found.position);
  return found;
}

}  // namespace flashcore::cuda::convert::append
