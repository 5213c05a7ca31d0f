// The automatic choice: which kernel of the table a problem gets where none is asked for.
#pragma once

#include <string>

#include "dispatch/kernels.hpp"
#include "problem/problem.hpp"

namespace flashcore {

struct KernelChoice {
  const Kernel* kernel;
  std::string reason;  // why it, in a sentence: what those before it said
};

// The first automatic kernel of the context's device that neither refuses nor declines; where there
// is none, the first that only declines; where all refuse, unsupported.
Result<KernelChoice> choose_kernel(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore
