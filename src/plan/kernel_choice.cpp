#include "plan/kernel_choice.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "cuda/forward_fp8/converted/layout.hpp"
#include "cuda/forward_fp8/v_rows/supports.hpp"
#include "kernel/device_code.hpp"
#include "plan/forward_choice.hpp"
#include "plan/table.hpp"
#include "plan/tuned_choice.hpp"

namespace flashcore {
namespace {

// What a caller should know of a kernel that runs.
std::string note_of(const Kernel& kernel, const DeviceInfo& device, bool has_declines) {
  std::string note;
  if (device_code(kernel.targets, device.compute_capability) == DeviceCode::ptx) {
    note = fmt::format(
        "never measured on compute capability {}, for which the driver compiles it at its first "
        "use",
        capability_text(device.compute_capability));
  }
  if (!kernel.by_name_because.empty()) {
    note += fmt::format("{}{}", note.empty() ? "" : "; ", kernel.by_name_because);
  }
  if (kernel.device != DeviceKind::cuda || !has_declines) return note;
  const std::string provenance = tuning_for(device).provenance();
  if (provenance.empty()) return note;
  return fmt::format("{}{}its tuning was {}", note, note.empty() ? "" : "; ", provenance);
}

std::string_view objection_of(const KernelVerdict& verdict) {
  return verdict.refusal.empty() ? verdict.declines : verdict.refusal;
}

const auto& declines_of(const Kernel& kernel, const ForwardProblem& /*pass*/) {
  return kernel.declines;
}
const auto& declines_of(const Kernel& kernel, const BackwardProblem& /*pass*/) {
  return kernel.backward.declines;
}

const auto& candidates_function(const Kernel& kernel, const ForwardProblem& /*pass*/) {
  return kernel.candidates;
}
const auto& candidates_function(const Kernel& kernel, const BackwardProblem& /*pass*/) {
  return kernel.backward.candidates;
}

std::string joined(std::string first, const std::string& second) {
  if (!first.empty() && !second.empty()) first += "; ";
  return first + second;
}

template <class AnyProblem>
KernelVerdict verdict(const Kernel& kernel, const AnyProblem& problem, Features features,
                      const PlanContext& context) {
  KernelVerdict verdict{.kernel = kernel.name,
                        .refusal = refusal_of(kernel, problem, features, context),
                        .automatic = kernel.automatic};
  if (!verdict.refusal.empty()) return verdict;
  const std::string by_name = by_name_alone(kernel, problem);
  verdict.automatic = kernel.automatic && by_name.empty();
  const auto& declines = declines_of(kernel, problem);
  if (verdict.automatic && declines) verdict.declines = declines(problem, context);
  verdict.note = joined(joined(own_note(kernel, problem, context), by_name),
                        note_of(kernel, context.device, static_cast<bool>(declines)));
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
  const Kernel* declined = nullptr;
  const Features features = features_of(problem);
  std::string objections;  // of those before the choice
  for (const Kernel& kernel : kernels()) {
    if (!runs_on(kernel, context.device.device.kind)) continue;
    choice.verdicts.push_back(verdict(kernel, problem, features, context));
    const KernelVerdict& said = choice.verdicts.back();
    if (choice.kernel != nullptr || !kernel.automatic || !computes(kernel, problem)) continue;
    if (said.automatic && objection_of(said).empty()) {
      choice.kernel = &kernel;
      continue;
    }
    if (said.refusal.empty() && said.automatic && declined == nullptr) declined = &kernel;
    objections += fmt::format("{}{}: {}", objections.empty() ? "" : "; ", kernel.name,
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
std::vector<std::string> configs(const Kernel& kernel, const AnyProblem& problem,
                                 const PlanContext& context) {
  const auto& candidates = candidates_function(kernel, problem);
  return candidates ? candidates(problem, context) : std::vector<std::string>();
}

template <class AnyProblem>
std::vector<std::string> all_candidates(const AnyProblem& problem, const PlanContext& context) {
  std::vector<std::string> names;
  const auto add = [&](const Kernel& kernel) {
    names.push_back(kernel.name);
    for (const std::string& config : configs(kernel, problem, context)) {
      PlanContext with = context;
      with.config = config;
      if (refusal_of(kernel, problem, with).empty()) names.push_back(kernel.name + ":" + config);
    }
  };
  const Kernel* const first = choose(problem, context, false).kernel;
  if (first != nullptr) add(*first);
  for (const Kernel& kernel : kernels()) {
    const bool may_run = (kernel.automatic || kernel.tunable) && kernel.name != "reference" &&
                         by_name_alone(kernel, problem).empty();
    if (&kernel == first || !may_run || !runs_on(kernel, context.device.device.kind)) continue;
    if (computes(kernel, problem) && refusal_of(kernel, problem, context).empty()) add(kernel);
  }
  return names;
}

template <class AnyProblem>
std::string config_refusal(const Kernel& kernel, const AnyProblem& problem,
                           const PlanContext& context, const std::string& config) {
  std::string known;
  for (const std::string& one : configs(kernel, problem, context)) {
    if (one == config) {
      PlanContext with = context;
      with.config = config;
      return refusal_of(kernel, problem, with);
    }
    known += known.empty() ? one : " " + one;
  }
  return fmt::format(
      "config is '{}', wanted {}", config,
      known.empty() ? "none: it has one way to compute this problem" : "none or one of " + known);
}

}  // namespace

std::string own_note(const Kernel& kernel, const ForwardProblem& problem,
                     const PlanContext& context) {
  namespace fp8 = cuda::forward_fp8;
  PlanContext inside = context;
  inside.config.clear();
  const auto by = [&](std::string_view what, const ForwardProblem& inner) {
    const Kernel* const chosen = choose_kernel(inner, inside).kernel;
    return chosen == nullptr ? std::string() : fmt::format("{} by {}", what, chosen->name);
  };
  if (kernel.name == fp8::converted::kName) {
    const fp8::converted::Layout layout = fp8::converted::layout_of(problem);
    return by(to_string(layout.dtype), fp8::converted::as_16_bit(problem, layout));
  }
  if (kernel.name == fp8::v_rows::kName) return by("V in rows", fp8::v_rows::in_rows(problem));
  return {};
}

std::string own_note(const Kernel& /*kernel*/, const BackwardProblem& /*problem*/,
                     const PlanContext& /*context*/) {
  return {};
}

KernelVerdict verdict_of(const Kernel& kernel, const ForwardProblem& problem,
                         const PlanContext& context) {
  return verdict(kernel, problem, features_of(problem), context);
}

KernelVerdict verdict_of(const Kernel& kernel, const BackwardProblem& problem,
                         const PlanContext& context) {
  return verdict(kernel, problem, features_of(problem), context);
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

std::string refuse_config(const Kernel& kernel, const ForwardProblem& problem,
                          const PlanContext& context, const std::string& config) {
  return config_refusal(kernel, problem, context, config);
}

std::string refuse_config(const Kernel& kernel, const BackwardProblem& problem,
                          const PlanContext& context, const std::string& config) {
  return config_refusal(kernel, problem, context, config);
}

}  // namespace flashcore
