// Random merges and appends with their tensors, and their expected results: docs/semantics.md,
// written a second time in fp64. For every device.
#pragma once

#include <cstdint>
#include <string>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/serving.hpp"
#include "tests/cpu/call_case.hpp"

namespace flashcore::testing {

using bench::HostTensor;
using bench::Random;

inline TensorDesc i32(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

using MergeCase = CallCase<Merge>;
using AppendCase = CallCase<Append>;

MergeCase random_merge(Random& random);
void expect_merged(MergeCase& one, const std::string& where);

struct Sizes {
  int64_t batch, heads, heads_q, rows, dqk, dv, page, columns, pages;
  bool paged, flat, packed;
};

// Every page has one owner, so that no two rows share a location. least_rows: total over all entries, about; 0: few.
AppendCase random_append(Random& random, Sizes& s, int64_t least_rows = 0);

inline bool is_fp8_cache(const AppendCase& one) { return size_of(one.what.v.dtype) == 1; }

// An append to a cache whose V is stored transposed; fp8 in one piece only.
AppendCase with_transposed_v(const AppendCase& rows);

// Checks the cache (name "k" or "v") after an append, and everything else in it.
void expect_appended(AppendCase& before, AppendCase& after, const Sizes& s,
                     const std::string& where);

}  // namespace flashcore::testing
