// The automatic choice: what every kernel of the table says to a problem, and which one it gets
// where none is asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.hpp"
#include "problem/problem.hpp"

namespace flashcore {

struct KernelChoice {
  std::vector<KernelVerdict> verdicts;  // of every variant of the device's kernels, best first
  // The one that a tuning table names (tuned_choice.hpp). Without one, the first automatic kernel that neither refuses nor declines; where there is none, the first
  // that only declines; where all refuse, null.
  const Variant* kernel = nullptr;
  std::string config;  // of a tuning table; empty: the kernel's own choice
  std::string reason;  // why it, or why none, in a sentence: what the others said
};

// Without `tuned`, as if there were no tuning table.
KernelChoice choose_kernel(const ForwardProblem& problem, const PlanContext& context,
                           bool tuned = true);
KernelChoice choose_kernel(const BackwardProblem& problem, const PlanContext& context,
                           bool tuned = true);

// What may run the problem, as PlanOptions::kernel has it (kernel_names.hpp), the choice without a
// tuning table first: every config of every variant that neither refuses the problem nor runs by
// name alone, but for the reference.
std::vector<std::string> candidates_of(const ForwardProblem& problem, const PlanContext& context);
std::vector<std::string> candidates_of(const BackwardProblem& problem, const PlanContext& context);

// Why a variant does not compute the problem with a config, or empty.
std::string refuse_config(const Variant& variant, const ForwardProblem& problem,
                          const PlanContext& context, const std::string& config);
std::string refuse_config(const Variant& variant, const BackwardProblem& problem,
                          const PlanContext& context, const std::string& config);

// What a caller asks for by name: a variant, null where the context's device has none of that name,
// and a config. A kernel's name means its plain variant, or its first where none is plain; where this
// one refuses the problem, a variant that is for what the problem has.
struct Asked {
  const Variant* variant = nullptr;
  std::string config;
};
Asked asked_for(std::string_view text, const ForwardProblem& problem, const PlanContext& context);
Asked asked_for(std::string_view text, const BackwardProblem& problem, const PlanContext& context);

// Why an automatic variant gets a problem that it computes only when asked for by name, or empty.
inline std::string only_by_name(const Variant& variant, const ForwardProblem& problem,
                                const PlanContext& context) {
  return variant.by_name_where ? variant.by_name_where(problem, context) : std::string();
}
inline std::string only_by_name(const Variant& /*variant*/, const BackwardProblem& /*problem*/,
                                const PlanContext& /*context*/) {
  return {};
}

// Which kernel it leaves the problem to, where it only converts tensors, or empty.
inline std::string inner_note(const Variant& variant, const ForwardProblem& problem,
                              const PlanContext& context) {
  return variant.inner ? variant.inner(problem, context) : std::string();
}
inline std::string inner_note(const Variant& /*variant*/, const BackwardProblem& /*problem*/,
                              const PlanContext& /*context*/) {
  return {};
}

// What one variant of the context's device says.
KernelVerdict verdict_of(const Variant& variant, const ForwardProblem& problem,
                         const PlanContext& context);
KernelVerdict verdict_of(const Variant& variant, const BackwardProblem& problem,
                         const PlanContext& context);

}  // namespace flashcore
