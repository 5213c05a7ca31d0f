#include "bench/gate/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

namespace flashcore::bench {
namespace {

bool is_fp8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

TensorDesc contiguous_f64(const TensorDesc& like) {
  return contiguous(DType::f64, std::span(like.shape).first(static_cast<size_t>(like.rank)));
}

// Runs a CPU kernel on the inputs of `host`, with outputs described by `problem`.
Status run_kernel(const char* kernel, HostProblem& host, const Problem& problem, HostTensor& o,
                  HostTensor* lse, int threads) {
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  Arguments args = host.arguments();
  args.o = o.data();
  args.lse = lse == nullptr ? nullptr : lse->data();
  return plan->run(args);
}

// Of two numbers that are not both finite: NaN for NaN, each infinity for itself.
bool same_kind(double got, double want) {
  return got == want || (std::isnan(got) && std::isnan(want));
}

// Errors of O, and its worst element in words; a failure if an element that is not finite is of
// another kind than the reference's.
std::string compare_o(const HostTensor& o, const Reference& reference, const GateLimits& limits,
                      Verdict& verdict, std::string& worst_element) {
  size_t worst = 0;
  double error_square = 0;
  double norm_square = 0;
  int64_t outliers = 0;
  for (size_t i = 0; i < reference.o.size(); ++i) {
    const double got = o.get(static_cast<int64_t>(i));
    const double want = reference.o[i];
    if (reference.past_fp32 && !std::isfinite(got)) continue;
    if (!std::isfinite(want) || !std::isfinite(got)) {
      if (!same_kind(got, want) && !(std::isnan(got) && reference.allows_nan(i))) {
        return fmt::format("o{} is {}, wanted {}", where(o.desc(), i), got, want);
      }
      continue;
    }
    const double error = std::abs(got - want);
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
    worst_element = fmt::format("o{} is {}, wanted {}", where(o.desc(), worst),
                                o.get(static_cast<int64_t>(worst)), reference.o[worst]);
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

std::string first_failure(const HostProblem& host, const Reference& reference,
                          const GateLimits& limits, Verdict& verdict) {
  for (const auto& [name, tensor] : host.tensors) {
    if (!tensor.canaries_intact()) {
      return fmt::format("{}: bytes outside of its elements were written", name);
    }
  }
  std::string worst;
  if (std::string failure = compare_o(host.at("o"), reference, limits, verdict, worst);
      !failure.empty()) {
    return failure;
  }
  if (host.has("lse")) {
    if (std::string failure = compare_lse(host.at("lse"), reference, verdict); !failure.empty()) {
      return failure;
    }
  }
  const auto past = [](const char* what, double value, double limit) {
    return value <= limit ? std::string()
                          : fmt::format("{} is {:.3g}, limit {:.3g}", what, value, limit);
  };
  std::string failure = past("max scaled error", verdict.max_scaled_error, limits.max_scaled_error);
  if (!failure.empty()) return failure + ": " + worst;
  failure = past("relative error", verdict.relative_error, limits.relative_error);
  if (failure.empty()) failure = past("LSE error", verdict.lse_error, limits.lse_error);
  if (failure.empty() && limits.naive_allowance) {
    failure = past("max error", verdict.max_error,
                   2 * reference.naive_max_error + *limits.naive_allowance);
  }
  if (failure.empty() && limits.outlier_error) {
    failure = past("fraction of outliers", verdict.outlier_fraction, limits.outlier_fraction);
  }
  return failure;
}

}  // namespace

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
  HostTensor o(problem.o);
  std::optional<HostTensor> lse;
  if (problem.lse) lse.emplace(*problem.lse);
  HostTensor* const lse_or_null = lse ? &*lse : nullptr;
  Status status = run_kernel("reference", host, problem, o, lse_or_null, threads);
  if (!status.ok()) return status;
  Reference reference;
  reference.o = o.values();
  if (lse) reference.lse = lse->values();
  // Tensor cores cut sums of fp8 products some 13 bits below the largest.
  if (is_fp8(host.problem.q.dtype)) reference.lse_rounding = 0x1p-10;
  if (!gate_limits(host.problem).naive_allowance) return reference;
  if (!with_naive) {
    reference.naive_max_error = std::numeric_limits<double>::infinity();
    return reference;
  }
  HostTensor naive(host.problem.o);
  Problem naive_problem = host.problem;
  naive_problem.lse.reset();
  status = run_kernel("naive", host, naive_problem, naive, nullptr, threads);
  if (!status.ok()) return status;
  for (size_t i = 0; i < reference.o.size(); ++i) {
    const double value = naive.get(static_cast<int64_t>(i));
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
  verdict.failure =
      first_failure(host, reference, reference.limits.value_or(gate_limits(host.problem)), verdict);
  verdict.passed = verdict.failure.empty();
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
