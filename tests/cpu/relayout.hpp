// Copies a problem to another memory layout.
#pragma once

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

// Copies `host` with other strides for every tensor: any order of dimensions, gaps, reversed
// dimensions and, on inputs that allow it, dimensions broadcast by a stride of 0 (which changes the
// values: all rows along it become equal). Outputs are poisoned.
bench::HostProblem relayout(const bench::HostProblem& host, bench::Random& random);

}  // namespace flashcore
