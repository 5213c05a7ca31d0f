// Properties that the batch entries of a problem share; without CUDA's headers.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// Returns whether batch entries differ in their lengths or diagonals.
bool entries_vary(const ForwardProblem& p);

// Returns key - query on the diagonal, which is the same for all entries if entries_vary() is false.
int64_t common_offset(const ForwardProblem& p);

// What the batch strides of K and V lead to, sequences or pages, and how many rows each of them has.
int64_t lead_of_keys(const ForwardProblem& p);
int64_t rows_of_keys(const ForwardProblem& p);

}  // namespace flashcore
