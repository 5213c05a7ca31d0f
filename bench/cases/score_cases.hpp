// Problems whose scores are hard in fp32, although fp32 decides them: large scores, large negative
// biases, steep ALiBi slopes, all softcaps. Weights are equal, or differ by far more than the error
// of a sum in fp32, or come from scores of moderate size. So the ordinary gates hold, and a lost
// row, with an O of 0 or NaN, cannot pass: the values lie in [1, 3). Also data that is hard for
// narrow probabilities (fp8_cases.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

struct ScoreCase {
  std::string name;  // "bias/f16/f32/finfo.min/whole": kind, dtype, details
  Problem problem;
  std::function<void(HostProblem&)> bend;  // transforms N(0, 1) inputs
  bool past_fp32 = false;                  // scores exceed fp32's largest: NaN is allowed
  std::optional<GateLimits> limits = {};   // replaces the limits of its types
};

std::vector<ScoreCase> score_cases();  // with unique names

// Inputs filled, outputs poisoned.
HostProblem fill(const ScoreCase& one);

// The fp64 reference only: the naive computation cannot represent such scores in 16 bits.
Result<Reference> score_reference(const ScoreCase& one, HostProblem& host, int threads = 0);

}  // namespace flashcore::bench
