// Kernels that first convert tensors of a problem, and leave the attention to another kernel of the table.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kernel/kernel.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert {

// The kernel that computes the attention.
struct Inner {
  const Variant* kernel = nullptr;  // static lifetime; null: none
  std::string config;               // as in PlanContext
  std::string refusal;              // if there is no kernel, a sentence that says why
};
using ChooseInner = Inner (*)(const ForwardProblem& problem, const PlanContext& context);

// Plans the inner kernel. `kernel`: the name of the outer one; `context` has no config.
inline Result<PlannedKernel> plan_inner(std::string_view kernel, const ForwardProblem& problem,
                                        PlanContext context, ChooseInner choose) {
  Inner inner = choose(problem, context);
  if (inner.kernel == nullptr) return unsupported("kernel {}: {}", kernel, inner.refusal);
  context.config = std::move(inner.config);
  return inner.kernel->plan(problem, context);
}

}  // namespace flashcore::cuda::convert
