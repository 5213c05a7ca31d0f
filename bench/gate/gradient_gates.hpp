// The gates of gradients in docs/accuracy.md: compare a backward run with the fp64 reference.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// The allowed errors, by the type of the inputs: the relative error of a gradient as a vector, and by
// how much its largest error may exceed twice the naive computation's, relative to its root mean square.
struct GradientLimits {
  double relative_error;
  double naive_allowance;
};

GradientLimits gradient_limits(DType dtype);

// The limits of a gradient of that type: the looser ones of the types that its
// numbers pass through.
GradientLimits gradient_limits(const Problem& problem, DType gradient);

// The loosest limits of any gradient of the problem.
GradientLimits gradient_limits(const Problem& problem, const Gradients& gradients);

// The right values of one gradient, in row-major order of its indices, and the
// naive computation's error.
struct GradientReference {
  std::vector<double> values;
  double naive_max_error = 0;
  // Errors are relative to this norm: the gradient's, or its terms'.
  double norm = 0;
  double norm_of_terms = 0;
  bool is_random = false;  // the problem is random, so few rows may have a gradient
};
using GradientReferences = std::map<std::string, GradientReference, std::less<>>;

// Runs the backward passes of "reference" and "naive". The outputs of `host` are not changed.
// `is_random`: an element above the root mean square may have an error relative to itself.
Result<GradientReferences> compute_reference(HostBackward& host, int threads = 0,
                                             bool is_random = false);

// Judges one gradient, or some of its rows. Returns the first failed gate in words, and adds the
// largest errors to `verdict`.
std::string judge_gradient(const std::string& name, const HostTensor& got,
                           const GradientReference& reference, const GradientLimits& limits,
                           Verdict& verdict);

// Judges the gradients in `host`, and the canaries around every tensor. Verdict::relative_error
// and max_error are the largest over all gradients; max_scaled_error is relative to the gradient's
// root mean square.
Verdict judge(const HostBackward& host, const GradientReferences& reference);

// The verdict, together with its limits.
nlohmann::ordered_json verdict_json(const Verdict& verdict, const GradientLimits& limits);

}  // namespace flashcore::bench
