#include "cli/gradient_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "bench/tensors/backward_set.hpp"
#include "bench/text/numbers.hpp"
#include "cli/problem_options.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

// Describes an incoming gradient from a file, converted to `dtype`.
Result<TensorDesc> describe_source(const std::string& name, const bench::TensorSource& source,
                                   DType dtype, const std::string& layout) {
  const std::vector<int64_t>& shape = source.info.shape;
  if (!is_float(source.dtype)) {
    return invalid("{}: dtype is {}, wanted a floating-point type", name, to_string(source.dtype));
  }
  if (shape.size() < 4 || layout == "bhsd") return bench::contiguous(dtype, shape);
  return in_layout(dtype, {shape[0], shape[2], shape[1], shape[3]}, layout);
}

// Sets every output to the type of --gradient-dtype.
void set_dtype(Gradients& gradients, DType dtype) {
  for (TensorDesc* const one : {&gradients.dq, &gradients.dk, &gradients.dv}) one->dtype = dtype;
  for (auto* const one : {&gradients.d_bias, &gradients.d_sinks, &gradients.d_alibi_slopes}) {
    if (*one) (*one)->dtype = dtype;
  }
}

}  // namespace

void GradientOptions::declare(OptionSet& options, bench::PlanChoice& choice) {
  options.group("The backward pass");
  options.flag("--backward", backward_,
               "Compute gradients, from O and LSE of a forward pass that runs before");
  options.text("--d-o", sources_["d_o"],
               "The gradient of O: another name in the file, or a .npy file (default: d_o of the "
               "file, or drawn from N(0, 1))",
               "NAME|NPY");
  options.text(
      "--d-lse", sources_["d_lse"],
      "A gradient that flows into LSE (default: d_lse of the file; --with d_lse draws one)",
      "NAME|NPY");
  options.text("--gradients", names_,
               "Which: dq,dk,dv,d_bias,d_sinks,d_alibi_slopes (default: all that the problem has)",
               "NAMES");
  options.choice("--gradient-dtype", dtype_, {"f32", "f64"},
                 "Their type (default: that of their tensors; f64: only the reference)");
  options.flag("--any-order", choice.any_order,
               "Let sums be added in any order, which may be faster; bits may then differ from run "
               "to run");
}

std::string GradientOptions::given_of_a_problem() const {
  const std::pair<const char*, bool> all[] = {{"--d-o", !sources_.at("d_o").empty()},
                                              {"--d-lse", !sources_.at("d_lse").empty()},
                                              {"--gradients", !names_.empty()},
                                              {"--gradient-dtype", !dtype_.empty()}};
  for (const auto& [name, is_given] : all) {
    if (is_given) return name;
  }
  return {};
}

Status GradientOptions::check(const bench::PlanChoice& choice) const {
  if (backward_) return {};
  std::string name = given_of_a_problem();
  if (name.empty() && choice.any_order) name = "--any-order";
  if (name.empty()) return {};
  return invalid("{}: is given, wanted it only with --backward", name);
}

Status GradientOptions::check_for_suites() const {
  const std::string name = given_of_a_problem();
  if (name.empty()) return {};
  return invalid("{}: is given for suites or cases, wanted it with --shape or files", name);
}

const std::map<std::string, std::string>& GradientOptions::sources() const {
  static const std::map<std::string, std::string> kNone;
  return backward_ ? sources_ : kNone;
}

Result<Gradients> GradientOptions::describe(const bench::ProblemInputs& inputs,
                                            const std::string& layout, bool d_lse) const {
  const Problem& problem = inputs.problem;
  if (!problem.lse) {
    return invalid(
        "--no-lse: is given with --backward, wanted one of them: gradients need the LSE");
  }
  Gradients gradients = bench::gradients_of(problem, d_lse);
  gradients.d_o.stride = problem.o.stride;
  gradients.dq.stride = problem.q.stride;
  gradients.dk.stride = problem.k.stride;
  gradients.dv.stride = problem.v.stride;
  if (!dtype_.empty()) set_dtype(gradients, dtype_ == "f64" ? DType::f64 : DType::f32);
  if (const auto source = inputs.sources.find("d_o"); source != inputs.sources.end()) {
    const Result<TensorDesc> desc = describe_source("d_o", source->second, problem.o.dtype, layout);
    if (!desc.ok()) return desc.status();
    gradients.d_o = *desc;
  }
  if (const auto source = inputs.sources.find("d_lse"); source != inputs.sources.end()) {
    // The LSE is [B, H, S] in any layout.
    const Result<TensorDesc> desc = describe_source("d_lse", source->second, DType::f32, "bhsd");
    if (!desc.ok()) return desc.status();
    gradients.d_lse = *desc;
  }
  const Result<std::vector<std::string>> asked = names(gradients);
  if (!asked.ok()) return asked.status();
  const auto drop_unasked = [&](const char* name, std::optional<TensorDesc>& desc) {
    if (std::find(asked->begin(), asked->end(), name) == asked->end()) desc.reset();
  };
  drop_unasked("d_bias", gradients.d_bias);
  drop_unasked("d_sinks", gradients.d_sinks);
  drop_unasked("d_alibi_slopes", gradients.d_alibi_slopes);
  return gradients;
}

Result<std::vector<std::string>> GradientOptions::names(const Gradients& gradients) const {
  std::vector<std::string> there;
  bench::for_each_gradient(gradients, [&](std::string_view name, const TensorDesc&) {
    if (bench::is_gradient_output(name)) there.emplace_back(name);
  });
  if (names_.empty()) return there;
  std::vector<std::string> asked;
  for (const std::string& name : bench::split(names_, ',')) {
    if (std::find(there.begin(), there.end(), name) == there.end()) {
      return invalid("--gradients: is '{}', wanted {} of this problem", name,
                     fmt::join(there, ", "));
    }
    if (std::find(asked.begin(), asked.end(), name) != asked.end()) {
      return invalid("--gradients: has '{}' twice, wanted it once", name);
    }
    asked.push_back(name);
  }
  return asked;
}

}  // namespace flashcore::cli
