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
  // The first automatic kernel that neither refuses nor declines; where there is none, the first
  // that only declines; where all refuse, null.
  const Kernel* kernel = nullptr;
  std::string reason;  // why it, or why none, in a sentence: what the others said
};

KernelChoice choose_kernel(const ForwardProblem& problem, const PlanContext& context);
KernelChoice choose_kernel(const BackwardProblem& problem, const PlanContext& context);

// What one kernel of the context's device says.
KernelVerdict verdict_of(const Kernel& kernel, const ForwardProblem& problem,
                         const PlanContext& context);
KernelVerdict verdict_of(const Kernel& kernel, const BackwardProblem& problem,
                         const PlanContext& context);

}  // namespace flashcore
