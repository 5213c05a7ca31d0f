// Attention written a second time, from docs/semantics.md only: in long double, the whole S x S
// matrix at once, every pair tested step by step. It shares no code with the library except for
// the public description of the problem, the element types and the dropout mask, which have
// their own tests.
#pragma once

#include <vector>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore {

struct OracleResult {
  std::vector<long double> o;        // row-major, like HostTensor::get
  std::vector<long double> lse;      // one per row, even if the problem has no LSE
  std::vector<long double> o_scale;  // divisor of each element of o when it is stored
  std::vector<long double> amax_o, amax_s, max_logit;  // elements of these tensors, if present
};

OracleResult oracle(const bench::HostProblem& host);

}  // namespace flashcore
