// Tiles of queries on the machine: what choices between kernels and their configurations go by.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

constexpr int64_t tiles_of(const ForwardProblem& p, int64_t block_q) {
  return (p.seqlen_q + block_q - 1) / block_q;
}

constexpr int64_t units_of(const ForwardProblem& p, int64_t block_q) {
  return tiles_of(p, block_q) * p.heads_q * p.batch;
}

// Returns whether two SMs can work on each tile of queries at once.
constexpr bool fits_twice(const ForwardProblem& p, int64_t block_q, int64_t multiprocessors) {
  return 2 * tiles_of(p, block_q) * p.heads_q * p.batch <= multiprocessors;
}

}  // namespace flashcore
