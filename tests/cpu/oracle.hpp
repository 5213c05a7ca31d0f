// What attention is, written a second time, from docs/semantics.md alone: long double, the whole
// S x S matrix at once, every pair asked one question after another. It shares no code with the
// library but the public description of the problem, the element types and the dropout mask, which
// have tests of their own.
#pragma once

#include <vector>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

struct OracleResult {
  std::vector<long double> o;               // row-major, as HostTensor::get counts
  std::vector<long double> lse;             // of every row, whether the problem asks for it or not
  std::vector<long double> o_scale;         // that each element of o is divided by when stored
  std::vector<long double> amax_o, amax_s;  // of the elements of those tensors, if there are any
};

OracleResult oracle(const bench::HostProblem& host);

}  // namespace flashcore
