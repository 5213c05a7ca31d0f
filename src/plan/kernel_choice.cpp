#include "plan/kernel_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernel/device_code.hpp"
#include "plan/forward_choice.hpp"
#include "plan/kernel_names.hpp"
#include "plan/table.hpp"
#include "plan/tuned_choice.hpp"

namespace flashcore {
namespace {

// What a caller should know of a kernel that runs.
std::string note_of(const Variant& variant, const DeviceInfo& device, bool has_declines) {
  std::string note;
  if (device_code(variant.targets, device.compute_capability) == DeviceCode::ptx) {
    note = fmt::format(
        "never measured on compute capability {}, for which the driver compiles it at its first "
        "use",
        capability_text(device.compute_capability));
  }
  if (!variant.not_automatic_reason.empty()) {
    note += fmt::format("{}{}", note.empty() ? "" : "; ", variant.not_automatic_reason);
  }
  if (variant.device != DeviceKind::cuda || !has_declines) return note;
  const std::string provenance = tuning_for(device).provenance();
  if (provenance.empty()) return note;
  return fmt::format("{}{}its tuning was {}", note, note.empty() ? "" : "; ", provenance);
}

std::string_view objection_of(const KernelVerdict& verdict) {
  return verdict.refusal.empty() ? verdict.declines : verdict.refusal;
}

const auto& declines_of(const Variant& variant, const ForwardProblem& /*pass*/) {
  return variant.declines;
}
const auto& declines_of(const Variant& variant, const BackwardProblem& /*pass*/) {
  return variant.backward.declines;
}

const auto& candidates_function(const Variant& variant, const ForwardProblem& /*pass*/) {
  return variant.candidates;
}
const auto& candidates_function(const Variant& variant, const BackwardProblem& /*pass*/) {
  return variant.backward.candidates;
}

std::string own_config(const Variant& variant, const ForwardProblem& p,
                       const PlanContext& context) {
  return variant.own_config ? variant.own_config(p, context) : std::string();
}
std::string own_config(const Variant& /*variant*/, const BackwardProblem& /*pass*/,
                       const PlanContext& /*context*/) {
  return {};
}

std::string joined(std::string first, const std::string& second) {
  if (!first.empty() && !second.empty()) first += "; ";
  return first + second;
}

template <class AnyProblem>
KernelVerdict verdict(const Variant& variant, const AnyProblem& problem, Features features,
                      const PlanContext& context) {
  KernelVerdict verdict{.kernel = variant.name,
                        .refusal = refusal_of(variant, problem, features, context),
                        .automatic = variant.automatic};
  if (!verdict.refusal.empty()) return verdict;
  const std::string by_name = only_by_name(variant, problem, context);
  verdict.automatic = variant.automatic && by_name.empty();
  const auto& declines = declines_of(variant, problem);
  if (verdict.automatic && declines) verdict.declines = declines(problem, context);
  verdict.note = joined(joined(inner_note(variant, problem, context), by_name),
                        note_of(variant, context.device, static_cast<bool>(declines)));
  return verdict;
}

// A table's entry goes before the order of the kernels.
template <class AnyProblem>
void take_tuned(KernelChoice& choice, const AnyProblem& problem, const PlanContext& context) {
  if (choice.kernel == nullptr) return;
  TunedChoice tuned = tuned_choice(problem, context, *choice.kernel);
  if (tuned.reason.empty()) return;
  for (KernelVerdict& verdict : choice.verdicts) {
    if (verdict.kernel != tuned.named) continue;
    verdict.note = joined(std::move(verdict.note), tuned.reason);
  }
  if (tuned.kernel == nullptr) {
    choice.reason += "; " + tuned.reason;
    return;
  }
  choice.kernel = tuned.kernel;
  choice.config = std::move(tuned.config);
  choice.reason = std::move(tuned.reason);
}

template <class AnyProblem>
KernelChoice choose(const AnyProblem& problem, const PlanContext& context, bool tuned) {
  KernelChoice choice;
  const Variant* declined = nullptr;
  const Features features = features_of(problem);
  std::string objections;  // of those before the choice
  for (const Variant& variant : variants()) {
    if (!runs_on(variant, context.device.device.kind)) continue;
    choice.verdicts.push_back(verdict(variant, problem, features, context));
    const KernelVerdict& said = choice.verdicts.back();
    if (choice.kernel != nullptr || !variant.automatic || !computes(variant, problem)) continue;
    if (said.automatic && objection_of(said).empty()) {
      choice.kernel = &variant;
      continue;
    }
    if (said.refusal.empty() && said.automatic && declined == nullptr) declined = &variant;
    objections += fmt::format("{}{}: {}", objections.empty() ? "" : "; ", variant.name,
                              said.automatic ? objection_of(said) : said.note);
  }
  if (choice.kernel != nullptr) {
    choice.reason = objections.empty()
                        ? "it is the best kernel of this device"
                        : "it is the best of those that take this problem; better ones do not (" +
                              objections + ")";
  } else if (declined != nullptr) {
    choice.kernel = declined;
    choice.reason = "no other computes it: " + objections;
  } else {
    choice.reason =
        objections.empty() ? "it has no kernel that is chosen automatically" : objections;
  }
  if (tuned) take_tuned(choice, problem, context);
  return choice;
}

template <class AnyProblem>
std::vector<std::string> configs(const Variant& variant, const AnyProblem& problem,
                                 const PlanContext& context) {
  const auto& candidates = candidates_function(variant, problem);
  return candidates ? candidates(problem, context) : std::vector<std::string>();
}

template <class AnyProblem>
std::vector<std::string> all_candidates(const AnyProblem& problem, const PlanContext& context) {
  std::vector<std::string> names;
  const auto add = [&](const Variant& variant) {
    names.push_back(variant.name);
    for (const std::string& config : configs(variant, problem, context)) {
      PlanContext with = context;
      with.config = config;
      if (refusal_of(variant, problem, with).empty())
        names.push_back(with_config(variant.name, config));
    }
  };
  const Variant* const first = choose(problem, context, false).kernel;
  if (first != nullptr) add(*first);
  for (const Variant& variant : variants()) {
    const bool may_run = (variant.automatic || variant.tunable) && variant.name != "reference" &&
                         only_by_name(variant, problem, context).empty();
    if (&variant == first || !may_run || !runs_on(variant, context.device.device.kind)) continue;
    if (computes(variant, problem) && refusal_of(variant, problem, context).empty()) add(variant);
  }
  return names;
}

template <class AnyProblem>
std::string config_refusal(const Variant& variant, const AnyProblem& problem,
                           const PlanContext& context, const std::string& config) {
  std::vector<std::string> all = configs(variant, problem, context);
  if (!all.empty()) {
    std::string own = own_config(variant, problem, context);
    if (!own.empty()) all.push_back(std::move(own));
  }
  if (std::find(all.begin(), all.end(), config) == all.end()) {
    return fmt::format("config is '{}', wanted {}", config,
                       all.empty() ? "none: it has one way to compute this problem"
                                   : fmt::format("none or one of {}", fmt::join(all, " ")));
  }
  PlanContext with = context;
  with.config = config;
  return refusal_of(variant, problem, with);
}

// The variant that a kernel's name stands for.
template <class AnyProblem>
const Variant& variant_for(const Kernel& kernel, const AnyProblem& problem,
                           const PlanContext& context) {
  const auto plain = std::find_if(kernel.variants.begin(), kernel.variants.end(),
                                  [&](const Variant& one) { return one.name == kernel.name; });
  const Variant& first = plain == kernel.variants.end() ? kernel.variants.front() : *plain;
  const Features features = features_of(problem);
  if (refusal_of(first, problem, features, context).empty()) return first;
  for (const Variant& variant : kernel.variants) {
    if (!(supports_of(variant, problem).needs & features).empty()) return variant;
  }
  return first;
}

template <class AnyProblem>
Asked asked(std::string_view text, const AnyProblem& problem, const PlanContext& context) {
  auto [name, config] = asked_name(text);
  for (const Kernel& kernel : kernels()) {
    if (!runs_on(kernel.variants.front(), context.device.device.kind)) continue;
    if (kernel.name == name) return {&variant_for(kernel, problem, context), std::move(config)};
    for (const Variant& variant : kernel.variants) {
      if (variant.name == name) return {&variant, std::move(config)};
    }
  }
  return {};
}

}  // namespace

Asked asked_for(std::string_view text, const ForwardProblem& problem, const PlanContext& context) {
  return asked(text, problem, context);
}

Asked asked_for(std::string_view text, const BackwardProblem& problem, const PlanContext& context) {
  return asked(text, problem, context);
}

KernelVerdict verdict_of(const Variant& variant, const ForwardProblem& problem,
                         const PlanContext& context) {
  return verdict(variant, problem, features_of(problem), context);
}

KernelVerdict verdict_of(const Variant& variant, const BackwardProblem& problem,
                         const PlanContext& context) {
  return verdict(variant, problem, features_of(problem), context);
}

KernelChoice choose_kernel(const ForwardProblem& problem, const PlanContext& context, bool tuned) {
  return choose(problem, context, tuned);
}

KernelChoice choose_kernel(const BackwardProblem& problem, const PlanContext& context, bool tuned) {
  return choose(problem, context, tuned);
}

std::vector<std::string> candidates_of(const ForwardProblem& problem, const PlanContext& context) {
  return all_candidates(problem, context);
}

std::vector<std::string> candidates_of(const BackwardProblem& problem, const PlanContext& context) {
  return all_candidates(problem, context);
}

std::string refuse_config(const Variant& variant, const ForwardProblem& problem,
                          const PlanContext& context, const std::string& config) {
  return config_refusal(variant, problem, context, config);
}

std::string refuse_config(const Variant& variant, const BackwardProblem& problem,
                          const PlanContext& context, const std::string& config) {
  return config_refusal(variant, problem, context, config);
}

}  // namespace flashcore
