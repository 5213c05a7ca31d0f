// Plans and runs a host problem, with canaries around its workspace: enough of them after it that
// an excess partial result hits them, and not other memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::testing {

// Args: of either pass.
template <class Args>
Status run_between_canaries(const Plan& plan, const Args& args) {
  constexpr size_t kAlignment = 256;
  constexpr size_t kBehind = size_t{1} << 16;
  const size_t bytes = plan.workspace_bytes();
  std::vector<std::byte> memory(bytes + 2 * kAlignment + kBehind, std::byte{0xFF});
  const size_t shift =
      kAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kAlignment + kAlignment;
  const Status status = plan.run(args, memory.data() + shift, bytes);
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool outside = i < shift || i >= shift + bytes;
    if (outside && memory[i] != std::byte{0xFF}) {
      ADD_FAILURE() << "byte " << i << " outside of the workspace was written";
      break;
    }
  }
  return status;
}

inline Status run_on_host(bench::HostProblem& host, const PlanOptions& options) {
  const Result<Plan> plan = make_plan(host.problem, options);
  if (!plan.ok()) return plan.status();
  return run_between_canaries(*plan, host.arguments());
}

}  // namespace flashcore::testing
