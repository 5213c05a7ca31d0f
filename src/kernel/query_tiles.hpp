// Tiles of queries on the machine: what the plans of the kernels for small problems decide by.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// Whether two SMs can work on each tile of queries at once.
constexpr bool fits_twice(const ForwardProblem& p, int64_t block_q, int64_t multiprocessors) {
  return 2 * ((p.seqlen_q + block_q - 1) / block_q) * p.heads_q * p.batch <= multiprocessors;
}

}  // namespace flashcore
