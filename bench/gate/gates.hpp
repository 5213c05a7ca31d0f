// The correctness gates of docs/accuracy.md: a result against the fp64 reference.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// Where an element of a row-major tensor lies: "[0, 3, 17, 5]".
std::string where(const TensorDesc& desc, size_t element);

// How close is right, by the type of the inputs. The scaled error of an element is
// |o - r| / max(1, |r|); the relative error is |o - r| / |r| as vectors.
struct GateLimits {
  double max_scaled_error;
  double relative_error;
  double lse_error;
  // 16-bit inputs: the largest error is at most twice that of the naive computation plus this.
  std::optional<double> naive_allowance;
  // fp8: at most `outlier_fraction` of the elements are off by more than `outlier_error`.
  std::optional<double> outlier_error;
  double outlier_fraction = 0;
};

GateLimits gate_limits(DType dtype);

// The looser limits of the types that the numbers of a problem pass through; an fp8 O is judged by
// what was rounded to it, and loosens none.
GateLimits gate_limits(const Problem& problem);

// The same for a few rows, or for scores of any spread. The relative error of fp8 inputs may then be
// what rounding to e4m3 is off by where it is coarsest, 1 / (8 sqrt(12)) in the root mean square: all
// large probabilities of a row may lie at the lower end of a power of two.
GateLimits gate_limits_of_few_rows(const Problem& problem);

// What is right for a problem: outputs in fp64, in row-major order of their indices.
struct Reference {
  std::vector<double> o;
  std::vector<double> lse;     // empty when the problem has none
  std::vector<double> amax_o;  // likewise
  std::vector<double> amax_s;
  std::vector<double> o_scale;  // of each element of O; empty: 1
  double naive_max_error = 0;   // of the unfused computation with 16-bit intermediates
  // Infinite elements of O, rising, that may be NaN: a weight rounds to 0 in 16 bits.
  std::vector<size_t> may_be_nan;
  double lse_rounding = 0;  // of an LSE, how large a part fp32 may lose: for large scores
  bool past_fp32 = false;   // scores past the largest fp32 number: a row may be infinite or NaN
  std::optional<GateLimits> limits = {};  // of data that has its own

  bool allows_nan(size_t element) const;
};

// Runs the kernels "reference" and, for 16-bit inputs, "naive"; without it there is no limit by its
// error. Outputs of `host` stay as they are.
Result<Reference> compute_reference(HostProblem& host, int threads = 0, bool naive = true);

struct Verdict {
  bool passed = false;
  std::string failure;  // one sentence: the first gate that failed
  double max_error = 0;
  double max_scaled_error = 0;
  double relative_error = 0;
  double lse_error = 0;
  double naive_max_error = 0;
  double outlier_fraction = 0;
  bool repeats = true;             // a second run, where there was one, gave the same bits
  std::set<std::string> launched;  // on a GPU: device functions, by mangled names
};

// How far x is from the numbers that are rounded to `stored`, a finite number of an fp8 type, where
// those past the largest number saturate.
double distance_from_rounding(DType fp8, double stored, double x);

// Judges the outputs in `host`: the limits of its type, NaN and each infinity exactly where the
// reference has it (except for `may_be_nan` and `past_fp32`), and canaries around every tensor.
Verdict judge(const HostProblem& host, const Reference& reference);

// The verdict beside the limits that it is held to.
nlohmann::ordered_json verdict_json(const Verdict& verdict, const Problem& problem);

}  // namespace flashcore::bench
