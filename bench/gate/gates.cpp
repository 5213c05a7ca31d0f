#include "bench/gate/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "problem/dtype.hpp"

namespace flashcore::bench {
namespace {

bool is_fp8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

TensorDesc contiguous_f64(const TensorDesc& like) { return contiguous_like(like, DType::f64); }

// Runs a CPU kernel on the inputs of `host`. Returns the outputs of `problem`.
Result<HostTensors> run_kernel(const char* kernel, HostProblem& host, const Problem& problem,
                               int threads) {
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  HostTensors outputs;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    if (is_output(name)) outputs.emplace(name, HostTensor(desc));
  });
  Arguments args = bind(problem, [&](std::string_view name) {
    const auto found = outputs.find(name);
    return found == outputs.end() ? host.at(name).data() : found->second.data();
  });
  args.dropout_seed = host.dropout_seed;
  args.dropout_offset = host.dropout_offset;
  if (Status status = plan->run(args); !status.ok()) return status;
  return outputs;
}

// A tensor that the problem lacks is empty.
std::vector<double> values_of(const HostTensors& tensors, std::string_view name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? std::vector<double>() : found->second.values();
}

// The entry of each row of a packed batch.
std::vector<int64_t> entries_of_rows(const HostProblem& host) {
  std::vector<int64_t> entries(static_cast<size_t>(host.problem.o.shape[0]));
  const HostTensor& begins = host.at("cu_seqlens_q");
  for (int64_t b = 0; b + 1 < begins.elements(); ++b) {
    for (auto row = static_cast<size_t>(begins.get(b));
         row < static_cast<size_t>(begins.get(b + 1)); ++row) {
      entries[row] = b;
    }
  }
  return entries;
}

// The scale of each element of O, in row-major order of its indices.
std::vector<double> scales_of_elements(const HostProblem& host) {
  if (!host.has("o_scale")) return {};
  const HostTensor& scale = host.at("o_scale");
  const auto& extents = scale.desc().shape;
  const auto& shape = host.problem.o.shape;
  const bool packed = host.problem.cu_seqlens_q.has_value();
  const std::vector<int64_t> entries = packed ? entries_of_rows(host) : std::vector<int64_t>();
  const int64_t inner = packed ? shape[2] : shape[2] * shape[3];  // elements per scale
  std::vector<double> scales;
  for (int64_t n = 0; n < shape[0] * shape[1]; ++n) {
    const int64_t outer = n / shape[1], head = n % shape[1];
    const int64_t b = packed ? entries[static_cast<size_t>(outer)] : outer;
    const int64_t at = (extents[0] == 1 ? 0 : b) * extents[1] + (extents[1] == 1 ? 0 : head);
    scales.insert(scales.end(), static_cast<size_t>(inner), scale.get(at));
  }
  return scales;
}

template <FloatFormat F>
double distance_from_rounding_of(double stored, double x) {
  const uint16_t bits = encode<F>(std::abs(stored));  // magnitudes order like their bits
  const bool is_largest = encode<F>(std::numeric_limits<double>::infinity()) == bits;
  const double number = decode<F>(bits);
  const double above = is_largest ? std::numeric_limits<double>::infinity()
                                  : decode<F>(static_cast<uint16_t>(bits + 1));
  const double below = bits == 0 ? -decode<F>(1) : decode<F>(static_cast<uint16_t>(bits - 1));
  const double along = std::signbit(stored) ? -x : x;
  const double last = (number + above) / 2, first = (below + number) / 2;
  if (along > last) return along - last;
  return along < first ? first - along : 0;
}

// Compares two numbers that are not both finite: NaN matches NaN, each infinity matches itself.
bool same_kind(double got, double want) {
  return got == want || (std::isnan(got) && std::isnan(want));
}

// Computes the errors of O, and describes its worst element. Returns a failure if an element is NaN
// or infinite where the reference is not, or the reverse.
std::string compare_o(const HostTensor& o, const Reference& reference, const GateLimits& limits,
                      Verdict& verdict, std::string& worst_element) {
  size_t worst = 0;
  double error_square = 0;
  double norm_square = 0;
  int64_t outliers = 0;
  const bool fp8 = is_fp8(o.desc().dtype);
  const auto scale_of = [&](size_t i) {
    return reference.o_scale.empty() ? 1.0 : reference.o_scale[i];
  };
  for (size_t i = 0; i < reference.o.size(); ++i) {
    const double got = o.get(static_cast<int64_t>(i));
    const double want = reference.o[i];
    if (reference.past_fp32 && !std::isfinite(got)) continue;
    if (!std::isfinite(want) || !std::isfinite(got)) {
      const bool saturates = fp8 && std::isfinite(got) && std::isinf(want) &&
                             distance_from_rounding(o.desc().dtype, got, want) == 0;
      const bool same = same_kind(got, want) && !(fp8 && std::isinf(got));
      if (!same && !saturates && !(std::isnan(got) && reference.allows_nan(i))) {
        return fmt::format("o{} is {}, wanted {}", where(o.desc(), i), got, want);
      }
      continue;
    }
    const double error =
        fp8 ? distance_from_rounding(o.desc().dtype, got, want / scale_of(i)) * scale_of(i)
            : std::abs(got - want);
    const double scaled_error = error / std::max(1.0, std::abs(want));
    verdict.max_error = std::max(verdict.max_error, error);
    if (scaled_error > verdict.max_scaled_error) {
      verdict.max_scaled_error = scaled_error;
      worst = i;
    }
    error_square += error * error;
    norm_square += want * want;
    if (limits.outlier_error && error > *limits.outlier_error) ++outliers;
  }
  if (norm_square > 0) {
    verdict.relative_error = std::sqrt(error_square / norm_square);
  } else if (error_square > 0) {
    verdict.relative_error = std::numeric_limits<double>::infinity();
  }
  if (!reference.o.empty()) {
    verdict.outlier_fraction =
        static_cast<double>(outliers) / static_cast<double>(reference.o.size());
  }
  if (verdict.max_scaled_error > 0) {
    worst_element =
        fmt::format("o{} is {}, wanted {}", where(o.desc(), worst),
                    o.get(static_cast<int64_t>(worst)), reference.o[worst] / scale_of(worst));
  }
  return {};
}

std::string compare_lse(const HostTensor& lse, const Reference& reference, Verdict& verdict) {
  for (size_t i = 0; i < reference.lse.size(); ++i) {
    const double got = lse.get(static_cast<int64_t>(i));
    const double want = reference.lse[i];
    if (reference.past_fp32 && !std::isfinite(got)) continue;
    if (std::isfinite(want) && std::isfinite(got)) {
      verdict.lse_error = std::max(verdict.lse_error,
                                   std::abs(got - want) - std::abs(want) * reference.lse_rounding);
    } else if (!same_kind(got, want)) {
      return fmt::format("lse{} is {}, wanted {}", where(lse.desc(), i), got, want);
    }
  }
  return {};
}

// Checks an output of largest values. A magnitude or a probability has no sign.
std::string compare_largest(const LargestValue& one, const HostProblem& host,
                            const Reference& reference, const std::vector<double>& values,
                            double (*limit_of)(const GateLimits&, const Reference&, double want)) {
  const GateLimits limits = reference.limits.value_or(gate_limits(host.problem.q.dtype));
  const bool may_be_nan = one.data == &Arguments::amax_o && !reference.may_be_nan.empty();
  const char* const name = one.name;
  for (size_t i = 0; i < values.size(); ++i) {
    const double got = host.at(name).get(static_cast<int64_t>(i)), want = values[i];
    if (one.data == &Arguments::max_logit && reference.past_fp32 && !std::isfinite(got)) continue;
    const bool right =
        std::isfinite(want) && std::isfinite(got)
            ? std::abs(got - want) <= limit_of(limits, reference, want) &&
                  !(one.least == 0 && std::signbit(got))
            : same_kind(got, want) || (may_be_nan && std::isnan(got) && std::isinf(want));
    if (!right) {
      return fmt::format("{}{} is {}, wanted {}", name, where(host.at(name).desc(), i), got, want);
    }
  }
  return {};
}

std::string compare_largest(const HostProblem& host, const Reference& reference) {
  // In the order of kLargestOutputs. A score is as exact as an LSE.
  constexpr double (*kLimits[])(const GateLimits&, const Reference&, double) = {
      [](const GateLimits& l, const Reference&, double want) {
        return l.max_scaled_error * std::max(1.0, want);
      },
      [](const GateLimits& l, const Reference&, double want) {
        return 2 * l.lse_error * want + std::numeric_limits<float>::min();
      },
      [](const GateLimits& l, const Reference& r, double want) {
        return l.lse_error + std::abs(want) * r.lse_rounding;
      }};
  static_assert(std::size(kLimits) == kLargestOutputs.size());
  for (size_t i = 0; i < kLargestOutputs.size(); ++i) {
    const LargestValue& one = kLargestOutputs[i];
    std::string failure = compare_largest(one, host, reference, reference.largest[i], kLimits[i]);
    if (!failure.empty()) return failure;
  }
  return {};
}

void check_limits(const GateLimits& limits, const std::string& worst_element, Verdict& verdict) {
  const auto check = [&](const char* what, double value, double limit,
                         const std::string& where = {}) {
    if (value <= limit) return;
    verdict.note(fmt::format("{} is {:.3g}, limit {:.3g}{}", what, value, limit, where));
  };
  check("max scaled error", verdict.max_scaled_error, limits.max_scaled_error,
        ": " + worst_element);
  check("relative error", verdict.relative_error, limits.relative_error);
  check("LSE error", verdict.lse_error, limits.lse_error);
  if (limits.naive_allowance) {
    check("max error", verdict.max_error, 2 * verdict.naive_max_error + *limits.naive_allowance);
  }
  if (limits.outlier_error) {
    check("fraction of outliers", verdict.outlier_fraction, limits.outlier_fraction);
  }
}

}  // namespace

double distance_from_rounding(DType fp8, double stored, double x) {
  return fp8 == DType::f8e4m3 ? distance_from_rounding_of<kF8E4M3>(stored, x)
                              : distance_from_rounding_of<kF8E5M2>(stored, x);
}

void Verdict::note(std::string sentence) {
  if (failure.empty()) failure = std::move(sentence);
  passed = failure.empty();
}

std::string where(const TensorDesc& desc, size_t element) {
  std::vector<int64_t> index(static_cast<size_t>(desc.rank));
  auto rest = static_cast<int64_t>(element);
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = rest % desc.shape[d];
    rest /= desc.shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

GateLimits gate_limits(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {.max_scaled_error = 1e-3,
              .relative_error = 1e-3,
              .lse_error = 1e-3,
              .naive_allowance = 1e-4,
              .outlier_error = std::nullopt};
    case DType::bf16:
      return {.max_scaled_error = 8e-3,
              .relative_error = 6e-3,
              .lse_error = 1e-3,
              .naive_allowance = 1e-3,
              .outlier_error = std::nullopt};
    case DType::f8e4m3:
    case DType::f8e5m2:
      return {.max_scaled_error = 6e-2,
              .relative_error = 3e-2,
              .lse_error = 1e-2,
              .naive_allowance = std::nullopt,
              .outlier_error = 0.05,
              .outlier_fraction = 0.01};
    default:
      return {.max_scaled_error = 2e-5,
              .relative_error = 2e-6,
              .lse_error = 1e-4,
              .naive_allowance = std::nullopt,
              .outlier_error = std::nullopt};
  }
}

GateLimits gate_limits(const Problem& problem) {
  const GateLimits in = gate_limits(problem.q.dtype);
  if (is_fp8(problem.o.dtype)) return in;
  const GateLimits out = gate_limits(problem.o.dtype);
  return out.max_scaled_error > in.max_scaled_error ? out : in;
}

GateLimits gate_limits_of_few_rows(const Problem& problem) {
  constexpr double kCoarsestE4m3 = 3.7e-2;
  GateLimits limits = gate_limits(problem);
  if (is_fp8(problem.q.dtype)) limits.relative_error = kCoarsestE4m3;
  return limits;
}

bool Reference::allows_nan(size_t element) const {
  return std::binary_search(may_be_nan.begin(), may_be_nan.end(), element);
}

Result<Reference> compute_reference(HostProblem& host, int threads, bool with_naive) {
  Problem problem = host.problem;
  problem.o = contiguous_f64(problem.o);
  if (problem.lse) problem.lse = contiguous_f64(*problem.lse);
  problem.o_scale.reset();
  for (const LargestValue& one : kLargestOutputs) {
    std::optional<TensorDesc>& largest = problem.*one.tensor;
    if (largest) largest = contiguous_like(*largest, DType::f32);
  }
  const Result<HostTensors> right = run_kernel("reference", host, problem, threads);
  if (!right.ok()) return right.status();
  Reference reference;
  reference.o = values_of(*right, "o");
  reference.lse = values_of(*right, "lse");
  for (size_t i = 0; i < kLargestOutputs.size(); ++i) {
    reference.largest[i] = values_of(*right, kLargestOutputs[i].name);
  }
  reference.o_scale = scales_of_elements(host);
  // Tensor cores truncate sums of fp8 products some 13 bits below the largest.
  if (is_fp8(host.problem.q.dtype)) reference.lse_rounding = 0x1p-10;
  if (!gate_limits(host.problem).naive_allowance) return reference;
  if (!with_naive) {
    reference.naive_max_error = std::numeric_limits<double>::infinity();
    return reference;
  }
  Problem naive_problem = host.problem;
  if (is_fp8(naive_problem.o.dtype)) naive_problem.o = problem.o;
  naive_problem.lse.reset(), naive_problem.o_scale.reset();
  for (const LargestValue& one : kLargestOutputs) (naive_problem.*one.tensor).reset();
  const Result<HostTensors> naive = run_kernel("naive", host, naive_problem, threads);
  if (!naive.ok()) return naive.status();
  const HostTensor& unfused = naive->find("o")->second;
  for (size_t i = 0; i < reference.o.size(); ++i) {
    const double value = unfused.get(static_cast<int64_t>(i));
    const double error = std::abs(value - reference.o[i]);
    if (std::isfinite(error))
      reference.naive_max_error = std::max(reference.naive_max_error, error);
    if (std::isinf(reference.o[i]) && std::isnan(value)) reference.may_be_nan.push_back(i);
  }
  return reference;
}

Verdict judge(const HostProblem& host, const Reference& reference) {
  Verdict verdict;
  verdict.naive_max_error = reference.naive_max_error;
  const GateLimits limits = reference.limits.value_or(gate_limits(host.problem));
  std::string worst;
  verdict.note(overrun(host.tensors));
  if (verdict.passed) verdict.note(compare_o(host.at("o"), reference, limits, verdict, worst));
  if (verdict.passed && host.has("lse")) {
    verdict.note(compare_lse(host.at("lse"), reference, verdict));
  }
  if (verdict.passed) verdict.note(compare_largest(host, reference));
  if (verdict.passed) check_limits(limits, worst, verdict);
  return verdict;
}

nlohmann::ordered_json verdict_json(const Verdict& verdict, const Problem& problem) {
  const GateLimits limits = gate_limits(problem);
  return {{"passed", verdict.passed},
          {"failure", verdict.failure},
          {"max_error", verdict.max_error},
          {"max_scaled_error", verdict.max_scaled_error},
          {"max_scaled_error_limit", limits.max_scaled_error},
          {"relative_error", verdict.relative_error},
          {"relative_error_limit", limits.relative_error},
          {"lse_error", verdict.lse_error},
          {"lse_error_limit", limits.lse_error},
          {"naive_max_error", verdict.naive_max_error},
          {"outlier_fraction", verdict.outlier_fraction}};
}

}  // namespace flashcore::bench
