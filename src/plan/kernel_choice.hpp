// The automatic choice: what every kernel of the table says to a problem, and which one it gets
// where none is asked for.
#pragma once

#include <string>
#include <vector>

#include "kernel/kernel.hpp"
#include "problem/problem.hpp"

namespace flashcore {

struct KernelChoice {
  std::vector<KernelVerdict> verdicts;  // of every kernel of the device, best first
  // The one that a tuning table names (tuned_choice.hpp). Without one, the first automatic kernel that neither refuses nor declines; where there is none, the first
  // that only declines; where all refuse, null.
  const Kernel* kernel = nullptr;
  std::string config;  // of a tuning table; empty: the kernel's own choice
  std::string reason;  // why it, or why none, in a sentence: what the others said
};

// Without `tuned`, as if there were no tuning table.
KernelChoice choose_kernel(const ForwardProblem& problem, const PlanContext& context,
                           bool tuned = true);
KernelChoice choose_kernel(const BackwardProblem& problem, const PlanContext& context,
                           bool tuned = true);

// What may run the problem, as PlanOptions::kernel has it ("NAME" or "NAME:CONFIG"), the choice without
// a tuning table first: every config of every kernel that neither refuses the problem nor runs by
// name alone, but for the reference.
std::vector<std::string> candidates_of(const ForwardProblem& problem, const PlanContext& context);
std::vector<std::string> candidates_of(const BackwardProblem& problem, const PlanContext& context);

// Why a kernel does not compute the problem with a config, or empty.
std::string refuse_config(const Kernel& kernel, const ForwardProblem& problem,
                          const PlanContext& context, const std::string& config);
std::string refuse_config(const Kernel& kernel, const BackwardProblem& problem,
                          const PlanContext& context, const std::string& config);

// How a kernel computes a problem, where it is by another kernel, or empty.
std::string own_note(const Kernel& kernel, const ForwardProblem& problem,
                     const PlanContext& context);
std::string own_note(const Kernel& kernel, const BackwardProblem& problem,
                     const PlanContext& context);

// What one kernel of the context's device says.
KernelVerdict verdict_of(const Kernel& kernel, const ForwardProblem& problem,
                         const PlanContext& context);
KernelVerdict verdict_of(const Kernel& kernel, const BackwardProblem& problem,
                         const PlanContext& context);

}  // namespace flashcore
