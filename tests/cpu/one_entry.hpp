// Makes one entry of a batch a problem of its own, to test whether its bits depend on the batch.
#pragma once

#include <cstdint>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

int64_t entries_of(const bench::HostProblem& host);

// Entry b alone: the same rows, lengths and options, a batch of 1. Packed problems stay packed.
bench::HostProblem one_entry(const bench::HostProblem& host, int64_t b);

// Returns whether the rows of entry b in the outputs of `whole` equal the rows of `alone`, bit for bit.
bool entry_is_same(const bench::HostProblem& whole, int64_t b, const bench::HostProblem& alone);

}  // namespace flashcore
