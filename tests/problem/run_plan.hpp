// Runs a plan with the workspace that it needs.
#pragma once

#include <cstdint>

#include "bench/tensors/host_tensor.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore {

inline Status run_plan(const Result<Plan>& plan, const Arguments& args) {
  if (!plan.ok()) return plan.status();
  const auto bytes = static_cast<int64_t>(plan->workspace_bytes());
  bench::HostTensor workspace(TensorDesc::contiguous(DType::f8e5m2, {bytes}));
  return plan->run(args, workspace.data(), plan->workspace_bytes());
}

}  // namespace flashcore
