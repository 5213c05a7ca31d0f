// The same problem, laid out differently in memory.
#pragma once

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

// Copies `host` with other strides for every tensor: any order of the dimensions, gaps, reversed
// dimensions and, on inputs that allow it, dimensions broadcast by a stride of 0 (which changes the
// values: all rows along it become equal). Outputs are poisoned.
bench::HostProblem relayout(const bench::HostProblem& host, bench::Random& random);

}  // namespace flashcore
