// Random problems with keys and values in a cache: in pages, padded on the left, in fp8.
//
// Everything that no row may see is NaN: pages that no entry reads, rows past the lengths, rows in
// the padding or left of a window, gaps between rows. Table indices that no run may read are out of
// range, and with a page status so are some of the others.
#pragma once

#include <cstdint>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// Puts a drawn problem over a cache; `bound_kv` is the most keys per entry, Skv of bias and mask.
Problem with_random_cache(Random& random, Problem problem, int64_t bound_kv, bool aligned);

// Fills lengths, tables, keys and values; lengths of queries and offsets are already filled.
void fill_random_cache(Random& random, HostProblem& host);

// The location of key `key` of entry b, derived only from docs/semantics.md: the clamped index into
// k's leading dimension, and the row. `was_clamped` is true if the index was out of range.
struct CacheRow {
  int64_t lead = 0;
  int64_t row = 0;
};
CacheRow cache_row(const HostProblem& host, int64_t b, int64_t key, bool& was_clamped);

// The keys in use of entry b, and the range [first, last) that its queries see.
struct CacheKeys {
  int64_t in_use = 0;
  int64_t first = 0;
  int64_t last = 0;
};
CacheKeys cache_keys(const HostProblem& host, int64_t b);

int64_t cache_entries(const Problem& problem);  // the batch

}  // namespace flashcore::bench
