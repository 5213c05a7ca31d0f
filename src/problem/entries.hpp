// What the batch entries of a problem have in common; without CUDA's headers.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// Whether batch entries differ in their lengths or diagonals.
bool entries_vary(const ForwardProblem& p);

// key - query on the diagonal of every entry, where they do not differ.
int64_t common_offset(const ForwardProblem& p);

// Of K and V: what their batch strides lead to, entries or pages, and how many rows that has.
int64_t lead_of_keys(const ForwardProblem& p);
int64_t rows_of_keys(const ForwardProblem& p);

}  // namespace flashcore
