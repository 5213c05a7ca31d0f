// Random problems whose keys and values lie in a cache: in pages, padded on the left, in fp8.
//
// Everything that no row may see is NaN: pages that no entry reads, rows past the lengths, in the
// padding and left of a window, gaps between rows. Indices in the table that no run may read are out
// of range, and with a page status some of the others are, too.
#pragma once

#include <cstdint>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// The drawn problem over a cache; `bound_kv` is the most keys of an entry, Skv of bias and mask.
Problem with_random_cache(Random& random, Problem problem, int64_t bound_kv, bool aligned);

// Fills lengths, tables, keys and values; lengths of queries and offsets are there already.
void fill_random_cache(Random& random, HostProblem& host);

// Where key `key` of entry b lies, by docs/semantics.md alone: the index of the leading dimension of
// k, clamped, and the row. `was_clamped` becomes true where the index was out of range.
struct CacheRow {
  int64_t lead = 0;
  int64_t row = 0;
};
CacheRow cache_row(const HostProblem& host, int64_t b, int64_t key, bool& was_clamped);

// The keys in use of entry b, and those that one of its queries sees: [first, last).
struct CacheKeys {
  int64_t in_use = 0;
  int64_t first = 0;
  int64_t last = 0;
};
CacheKeys cache_keys(const HostProblem& host, int64_t b);

int64_t cache_entries(const Problem& problem);  // the batch

}  // namespace flashcore::bench
