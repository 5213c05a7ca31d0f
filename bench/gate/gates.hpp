// The correctness gates of docs/accuracy.md: compare a result with the fp64 reference.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "problem/problem.hpp"

namespace flashcore::bench {

// The indices of an element of a row-major tensor: "[0, 3, 17, 5]".
std::string where(const TensorDesc& desc, size_t element);

// The allowed errors, by the type of the inputs. The scaled error of an element is |o - r| / max(1,
// |r|); the relative error is |o - r| / |r| as vectors.
struct GateLimits {
  double max_scaled_error;
  double relative_error;
  double lse_error;
  // 16-bit inputs: the largest error is at most twice the naive computation's plus this.
  std::optional<double> naive_allowance;
  // fp8: at most `outlier_fraction` of the elements have an error above `outlier_error`.
  std::optional<double> outlier_error;
  double outlier_fraction = 0;
};

GateLimits gate_limits(DType dtype);

// The looser limits of the types that a problem's numbers pass through. An fp8 O is judged by the
// number before rounding, and loosens nothing.
GateLimits gate_limits(const Problem& problem);

// The limits for a few rows, or for scores of any spread. The relative error of fp8 inputs may then
// equal the coarsest rounding error of e4m3, 1 / (8 sqrt(12)) in the root mean square: all large
// probabilities of a row may lie at the lower end of a power of two.
GateLimits gate_limits_of_few_rows(const Problem& problem);

// The right outputs for a problem, in fp64, in row-major order of their indices.
struct Reference {
  std::vector<double> o;
  std::vector<double> lse;  // empty if the problem has no LSE
  std::array<std::vector<double>, kLargestOutputs.size()> largest;  // each empty in the same way
  std::vector<double> o_scale;                                      // per element of O; empty: 1
  double naive_max_error = 0;  // error of the unfused computation in 16 bits
  // Infinite elements of O, in ascending order, that may be NaN: a weight rounds to 0 in 16 bits.
  std::vector<size_t> may_be_nan;
  double lse_rounding = 0;  // the relative part of an LSE that fp32 may lose, for large scores
  bool past_fp32 = false;   // scores exceed fp32's largest: a row may be infinite or NaN
  std::optional<GateLimits> limits = {};  // limits specific to the data

  bool allows_nan(size_t element) const;
};

// Runs the kernels "reference" and, for 16-bit inputs, "naive"; without `naive` its error sets no
// limit. The outputs of `host` are not changed.
Result<Reference> compute_reference(HostProblem& host, int threads = 0, bool naive = true);

struct Verdict {
  bool passed = false;
  std::string failure;  // one sentence: the first failed gate
  double max_error = 0;
  double max_scaled_error = 0;
  double relative_error = 0;
  double lse_error = 0;
  double naive_max_error = 0;
  double outlier_fraction = 0;
  bool repeats = true;             // a second run, if any, gave the same bits
  std::set<std::string> launched;  // GPU: mangled names of device functions

  // Fails for the sentence, unless it is empty. The first failure stays.
  void note(std::string sentence);
};

// The distance of x from the numbers that round to `stored`, a finite number of an fp8 type;
// numbers past the largest one saturate.
double distance_from_rounding(DType fp8, double stored, double x);

// Judges the outputs in `host`: the limits of its type, NaN and infinities exactly where the
// reference has them (except for `may_be_nan` and `past_fp32`), and the canaries around every tensor.
Verdict judge(const HostProblem& host, const Reference& reference);

// The verdict, together with its limits.
nlohmann::ordered_json verdict_json(const Verdict& verdict, const Problem& problem);

}  // namespace flashcore::bench
