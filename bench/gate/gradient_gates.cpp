#include "bench/gate/gradient_gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "cpu/reference_backward.hpp"
#include "problem/backward.hpp"

namespace flashcore::bench {
namespace {

using Outputs = std::map<std::string, HostTensor, std::less<>>;

Outputs outputs_of(const Gradients& gradients) {
  Outputs outputs;
  for_each_gradient(gradients, [&](std::string_view name, const TensorDesc& desc) {
    if (is_gradient_output(name)) outputs.emplace(name, HostTensor(desc));
  });
  return outputs;
}

BackwardArguments arguments_of(HostBackward& host, const Gradients& gradients, Outputs& outputs) {
  return bind(gradients, host.forward.arguments(), [&](std::string_view name) {
    const auto found = outputs.find(name);
    return found == outputs.end() ? host.at(name).data() : found->second.data();
  });
}

// The reference's gradients, and the squares of their terms.
Result<Outputs> run_reference(HostBackward& host, int threads, cpu::SquaredTerms& squares) {
  const Gradients gradients = exact(host.gradients);
  const Result<BackwardProblem> problem = resolve(host.forward.problem, gradients);
  if (!problem.ok()) return problem.status();
  Outputs outputs = outputs_of(gradients);
  cpu::reference_backward(*problem, arguments_of(host, gradients, outputs), threads, DType::f64,
                          &squares);
  return outputs;
}

Result<Outputs> run_naive(HostBackward& host, int threads) {
  Outputs outputs = outputs_of(host.gradients);
  PlanOptions options;
  options.kernel = "naive";
  options.threads = threads;
  const Result<Plan> plan = make_backward_plan(host.forward.problem, host.gradients, options);
  if (!plan.ok()) return plan.status();
  if (Status status = plan->run(arguments_of(host, host.gradients, outputs)); !status.ok()) {
    return status;
  }
  return outputs;
}

// The error of a gradient, over the elements that are finite in both.
struct Error {
  double square = 0, largest = 0;
  double largest_excess = 0;  // largest error minus the element's own allowance
  size_t worst = 0;
  std::optional<size_t> other_kind;  // the first element that is finite in only one of them

  double relative(double norm) const {
    if (norm > 0) return std::sqrt(square) / norm;
    return square > 0 ? std::numeric_limits<double>::infinity() : 0;
  }
};

Error error_of(const HostTensor& got, const std::vector<double>& want, double of_element) {
  Error out;
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = got.get(static_cast<int64_t>(i));
    if (std::isfinite(value) != std::isfinite(want[i]) && !out.other_kind) out.other_kind = i;
    if (!std::isfinite(value) || !std::isfinite(want[i])) continue;
    const double error = std::abs(value - want[i]);
    const double excess = error - of_element * std::abs(want[i]);
    if (excess > out.largest_excess || error > out.largest) out.worst = i;
    out.largest = std::max(out.largest, error);
    out.largest_excess = std::max(out.largest_excess, excess);
    out.square += error * error;
  }
  return out;
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    if (std::isfinite(value)) sum += value * value;
  }
  return std::sqrt(sum);
}

// The number of elements in the root mean square: for a random problem, those with a gradient.
double count_of(const GradientReference& reference) {
  const auto count = reference.is_random
                         ? std::count_if(reference.values.begin(), reference.values.end(),
                                         [](double value) { return value != 0; })
                         : std::ssize(reference.values);
  return std::max(1.0, static_cast<double>(count));
}

// The norm of the terms of a gradient's sums.
double norm_of_terms(std::string_view name, const cpu::SquaredTerms& squares) {
  const std::pair<std::string_view, double> all[] = {
      {"dq", squares.dq},           {"dk", squares.dk},
      {"dv", squares.dv},           {"d_bias", squares.d_bias},
      {"d_sinks", squares.d_sinks}, {"d_alibi_slopes", squares.d_alibi_slopes}};
  for (const auto& [gradient, square] : all) {
    if (gradient == name) return std::sqrt(square);
  }
  return 0;
}

}  // namespace

GradientLimits gradient_limits(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {.relative_error = 3e-3, .naive_allowance = 5e-4};
    case DType::bf16:
      return {.relative_error = 1.2e-2, .naive_allowance = 4e-3};
    default:
      return {.relative_error = 5e-6, .naive_allowance = 1e-5};
  }
}

GradientLimits gradient_limits(const Problem& problem, DType gradient) {
  GradientLimits out = gradient_limits(problem.q.dtype);
  for (const DType dtype : {problem.o.dtype, gradient}) {
    const GradientLimits other = gradient_limits(dtype);
    if (other.relative_error > out.relative_error) out = other;
  }
  return out;
}

GradientLimits gradient_limits(const Problem& problem, const Gradients& gradients) {
  GradientLimits out = gradient_limits(problem.q.dtype);
  for_each_gradient(gradients, [&](std::string_view, const TensorDesc& desc) {
    const GradientLimits one = gradient_limits(problem, desc.dtype);
    if (one.relative_error > out.relative_error) out = one;
  });
  return out;
}

Result<GradientReferences> compute_reference(HostBackward& host, int threads, bool is_random) {
  cpu::SquaredTerms squares;
  const Result<Outputs> right = run_reference(host, threads, squares);
  if (!right.ok()) return right.status();
  const Result<Outputs> naive = run_naive(host, threads);
  if (!naive.ok()) return naive.status();
  GradientReferences references;
  for (const auto& [name, tensor] : *right) {
    GradientReference& one = references[name];
    one.values.resize(static_cast<size_t>(tensor.elements()));
    for (size_t i = 0; i < one.values.size(); ++i) {
      one.values[i] = tensor.get(static_cast<int64_t>(i));
    }
    one.norm_of_terms = norm_of_terms(name, squares);
    one.norm = std::max(norm_of(one.values), one.norm_of_terms);
    one.is_random = is_random;
    const Error error = error_of(naive->find(name)->second, one.values, 0);
    one.naive_max_error = error.largest;
  }
  return references;
}

std::string judge_gradient(const std::string& name, const HostTensor& got,
                           const GradientReference& reference, const GradientLimits& limits,
                           Verdict& verdict) {
  // Terms may cancel: the allowance of an element is relative to its terms.
  const double own = norm_of(reference.values);
  const double cancelled = own > 0 ? reference.norm / own : 1;
  const Error error =
      error_of(got, reference.values, reference.is_random ? limits.naive_allowance * cancelled : 0);
  const auto element = [&](size_t i) {
    return fmt::format("{}{} is {}, wanted {}", name, where(got.desc(), i),
                       got.get(static_cast<int64_t>(i)), reference.values[i]);
  };
  if (error.other_kind) return element(*error.other_kind);
  const double scale = reference.norm / std::sqrt(count_of(reference));
  verdict.max_error = std::max(verdict.max_error, error.largest);
  verdict.naive_max_error = std::max(verdict.naive_max_error, reference.naive_max_error);
  if (scale > 0) {
    verdict.max_scaled_error = std::max(verdict.max_scaled_error, error.largest / scale);
    verdict.relative_error = std::max(verdict.relative_error, error.relative(reference.norm));
  }
  if (!(error.relative(reference.norm) <= limits.relative_error)) {
    return fmt::format("{}: relative error is {:.3g}, limit {:.3g}: {}", name,
                       error.relative(reference.norm), limits.relative_error, element(error.worst));
  }
  const double largest = 2 * reference.naive_max_error + limits.naive_allowance * scale;
  if (!(error.largest_excess <= largest)) {
    return fmt::format("{}: max error is {:.3g}, limit {:.3g}: {}", name, error.largest, largest,
                       element(error.worst));
  }
  return {};
}

Verdict judge(const HostBackward& host, const GradientReferences& reference) {
  Verdict verdict;
  verdict.note(overrun(host.forward.tensors));
  verdict.note(overrun(host.tensors));
  if (!verdict.passed) return verdict;
  for (const auto& [name, right] : reference) {
    const HostTensor& got = host.at(name);
    const GradientLimits limits = gradient_limits(host.forward.problem, got.desc().dtype);
    verdict.note(judge_gradient(name, got, right, limits, verdict));
  }
  return verdict;
}

nlohmann::ordered_json verdict_json(const Verdict& verdict, const GradientLimits& limits) {
  return {{"passed", verdict.passed},
          {"failure", verdict.failure},
          {"max_error", verdict.max_error},
          {"max_scaled_error", verdict.max_scaled_error},
          {"relative_error", verdict.relative_error},
          {"relative_error_limit", limits.relative_error},
          {"naive_max_error", verdict.naive_max_error},
          {"naive_allowance", limits.naive_allowance}};
}

}  // namespace flashcore::bench
