// Kernels that make other tensors of a problem first, and leave the attention to a kernel of the table.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kernel/kernel.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::forward_fp8 {

// What computes the attention.
struct Inner {
  const Kernel* kernel = nullptr;  // as long as the program; null: none
  std::string config;              // as PlanContext has it
  std::string refusal;             // where there is none, a sentence why
};
using ChooseInner = Inner (*)(const ForwardProblem& problem, const PlanContext& context);

// Its plan. `kernel`: the name of the one that it is inside of; `context` has no config.
inline Result<PlannedKernel> plan_inner(std::string_view kernel, const ForwardProblem& problem,
                                        PlanContext context, ChooseInner choose) {
  Inner inner = choose(problem, context);
  if (inner.kernel == nullptr) return unsupported("kernel {}: {}", kernel, inner.refusal);
  context.config = std::move(inner.config);
  return inner.kernel->plan(problem, context);
}

}  // namespace flashcore::cuda::forward_fp8
