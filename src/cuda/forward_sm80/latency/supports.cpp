#include "cuda/forward_sm80/latency/supports.hpp"

#include <fmt/format.h>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/host/latency_supports.hpp"
#include "kernel/device_code.hpp"

namespace flashcore::cuda::forward_sm80::latency {

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  if (device.compute_capability < 80) {
    return fmt::format("device: compute capability is {}, wanted 8.0 or later",
                       capability_text(device.compute_capability));
  }
  std::string refusal = refuse_code(targets, device.compute_capability);
  if (refusal.empty()) refusal = host::latency_refusal(problem, false);
  if (refusal.empty() && choose_config(problem.head_dim_qk, problem.head_dim_v, problem.seqlen_kv,
                                       false, device.shared_memory_a_block) < 0) {
    refusal = fmt::format("device: has {} bytes of shared memory per block, wanted {}",
                          device.shared_memory_a_block, kSmallSharedMemory);
  }
  return refusal;
}

}  // namespace flashcore::cuda::forward_sm80::latency
