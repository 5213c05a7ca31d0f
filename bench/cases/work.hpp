// How much work a problem is, by the rule that every report uses.
#pragma once

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// 2 Hq (Dqk + Dv) operations for each pair of a query and a key that it may see by position
// (causal, window, lengths). A square causal problem counts as half of the full one. Biases, masks
// and the softmax itself count nothing.
double forward_flop(HostProblem& host);

// Known without data. Where there are lengths, of the longest that they may be.
double forward_flop(const Problem& problem);

// The same for the backward pass: 2 Hq (3 Dqk + 2 Dv) for each pair, of the products S = Q K^T,
// dP = dO V^T, dV = P^T dO, dQ = dS K and dK = dS^T Q.
double backward_flop(HostProblem& host);
double backward_flop(const Problem& problem);

// With the lengths and offsets of `args`; its other pointers are not read.
double forward_flop(const Problem& problem, const Arguments& args);
double backward_flop(const Problem& problem, const Arguments& args);

}  // namespace flashcore::bench
