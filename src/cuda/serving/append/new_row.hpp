// Where a new row becomes a row of the cache, whatever lengths in device memory say. constexpr: the
// kernel and host tests use the same function.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/kv_cache.hpp"

namespace flashcore::cuda::serving::append {

struct NewRow {
  bool in_use = false;  // whether it is one of the entry's new rows
  bool fits = false;    // whether the entry's cache has a row for it
  int key = 0;          // that it becomes, counted from the entry's first
  int64_t position = 0;
  attention::CachedEntry entry{};
};

// New row `row`, of the packed tensor or of entry b.
constexpr NewRow find_new_row(const attention::ForwardParams& p, const attention::KvCacheParams& c,
                              int b, int row) {
  NewRow found;
  found.entry = attention::find_cached_entry(p, c, b);
  const int number = row - found.entry.entry.q_row;
  found.in_use = number >= 0 && number < found.entry.entry.len_q;
  if (!found.in_use) return found;
  int64_t room = p.seqlen_kv;
  if (c.flat) room = std::min(room, attention::listed_rows(c, b).rows);
  // Rows in use before, as they are told: those past the cache leave no room for more.
  const int64_t before = p.seqlens_kv.at(b);
  const int64_t padding = c.leftpad.data == nullptr ? 0 : c.leftpad.at(b);
  found.fits = before >= 0 && padding >= 0 && padding <= before && before + number < room;
  found.position = before - padding + number;
  if (found.fits) found.key = static_cast<int>(found.position);
  return found;
}

}  // namespace flashcore::cuda::serving::append
