// The work of a problem, by the rule that every report uses.
#pragma once

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// 2 Hq (Dqk + Dv) operations per pair of a query and a key that it may see by position (causal,
// window, lengths). A square causal problem counts half of the full one. Biases, masks and the
// softmax itself do not count.
double forward_flop(HostProblem& host);

// Needs no data. With lengths, assumes the largest possible ones.
double forward_flop(const Problem& problem);

// The backward pass: 2 Hq (3 Dqk + 2 Dv) per pair, for the products S = Q K^T, dP = dO V^T, dV =
// P^T dO, dQ = dS K and dK = dS^T Q.
double backward_flop(HostProblem& host);
double backward_flop(const Problem& problem);

// Uses the lengths and offsets of `args`; its other pointers are not read.
double forward_flop(const Problem& problem, const Arguments& args);
double backward_flop(const Problem& problem, const Arguments& args);

}  // namespace flashcore::bench
