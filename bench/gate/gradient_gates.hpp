// The gates of gradients in docs/accuracy.md: a backward run against the fp64 reference.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// How close is right, by the type of the inputs: the relative error of a gradient as a vector, and
// what its largest error may exceed twice the naive computation's by, in its root mean square.
struct GradientLimits {
  double relative_error;
  double naive_allowance;
};

GradientLimits gradient_limits(DType dtype);

// What a gradient of that type is held to: the looser limits of the types that its numbers pass
// through.
GradientLimits gradient_limits(const Problem& problem, DType gradient);

// The loosest that a gradient of the problem is held to.
GradientLimits gradient_limits(const Problem& problem, const Gradients& gradients);

// What is right for one gradient, in row-major order of its indices, and how far the naive
// computation is from it.
struct GradientReference {
  std::vector<double> values;
  double naive_max_error = 0;
  // What errors are relative to: the norm of the gradient, or of the terms that it is a sum of.
  double norm = 0;
  double norm_of_terms = 0;
  bool is_random = false;  // of a random problem, of which few rows may have a gradient
};
using GradientReferences = std::map<std::string, GradientReference, std::less<>>;

// Runs the backward passes of "reference" and "naive". Outputs of `host` stay as they are.
// `is_random`: where an element is larger than the root mean square, errors may be relative to it.
Result<GradientReferences> compute_reference(HostBackward& host, int threads = 0,
                                             bool is_random = false);

// Judges one gradient, or some rows of it: the first gate that failed, in words. The largest errors
// are put into `verdict`.
std::string judge_gradient(const std::string& name, const HostTensor& got,
                           const GradientReference& reference, const GradientLimits& limits,
                           Verdict& verdict);

// Judges the gradients in `host`, and canaries around every tensor. Verdict::relative_error and
// max_error are the largest of all gradients; max_scaled_error is in the root mean square of the
// gradient.
Verdict judge(const HostBackward& host, const GradientReferences& reference);

// The verdict beside the limits that it is held to.
nlohmann::ordered_json verdict_json(const Verdict& verdict, const GradientLimits& limits);

}  // namespace flashcore::bench
