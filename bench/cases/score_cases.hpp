// Problems whose scores are hard on fp32, although fp32 decides them: large scores, large negative
// biases, steep ALiBi slopes, all softcaps. Weights are equal, or differ by far more than a sum in
// fp32 may be off by, or come from scores of moderate size. So the ordinary gates hold, and a row
// that is lost, which is O of 0 or NaN, cannot pass: the values lie in [1, 3). And data that is hard
// on narrow probabilities (fp8_cases.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

struct ScoreCase {
  std::string name;  // "bias/f16/f32/finfo.min/whole": kind, dtype, then what is particular
  Problem problem;
  std::function<void(HostProblem&)> bend;  // what it makes of N(0, 1) inputs
  bool past_fp32 = false;                  // scores past the largest fp32 number: NaN will do
  std::optional<GateLimits> limits = {};   // instead of those of its types
  bool on_gpus = true;                     // whether GPU kernels compute it yet
};

std::vector<ScoreCase> score_cases();  // each with a name of its own

// Inputs filled, outputs poisoned.
HostProblem fill(const ScoreCase& one);

// What is right, by the fp64 reference alone: the naive computation has no such scores in 16 bits.
Result<Reference> score_reference(const ScoreCase& one, HostProblem& host, int threads = 0);

}  // namespace flashcore::bench
