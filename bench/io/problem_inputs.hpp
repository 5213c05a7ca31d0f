// A problem with its data: from files, or drawn.
#pragma once

#include <cstdint>

#include "bench/io/inputs.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// A problem, and where its data comes from.
struct ProblemInputs {
  Problem problem;
  // Empty: inputs are drawn from N(0, 1) by `seed`, as "d_o" and "d_lse" are where they are missing.
  TensorSources sources;
  uint64_t seed = 0;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;

  // Reads or draws the inputs; outputs are poisoned. Call it for problems that a plan was made
  // for: descriptors are trusted. Refuses what this machine's memory does not hold.
  Result<HostProblem> load() const;

  // The same with the gradients of a backward plan. O and LSE are for a forward run to write.
  Result<HostBackward> load(const Gradients& gradients) const;
};

// Refuses a problem whose tensors this machine's memory does not hold.
Status check_memory(const Problem& problem);
Status check_memory(const Problem& problem, const Gradients& gradients);

}  // namespace flashcore::bench
