// A problem with its data: from files, or drawn.
#pragma once

#include <cstdint>

#include "bench/io/inputs.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// A problem, and the sources of its data.
struct ProblemInputs {
  Problem problem;
  // Empty: draws inputs from N(0, 1) by `seed`, and also "d_o" and "d_lse" if they are missing.
  TensorSources sources;
  uint64_t seed = 0;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;

  // Reads or draws the inputs; poisons the outputs. The problem must have a plan: descriptors are
  // trusted. Refuses data that this machine's memory does not hold.
  Result<HostProblem> load() const;

  // load() with the gradients of a backward plan. A forward run must write O and LSE.
  Result<HostBackward> load(const Gradients& gradients) const;
};

// Refuses a problem whose tensors do not fit into this machine's memory.
Status check_memory(const Problem& problem);
Status check_memory(const Problem& problem, const Gradients& gradients);

}  // namespace flashcore::bench
