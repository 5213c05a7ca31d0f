#include "cuda/forward_sm80/latency/supports.hpp"

#include <fmt/format.h>

#include <limits>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/host/latency_supports.hpp"

namespace flashcore::cuda::forward_sm80::latency {

Supports supports() {
  return but_not(host::latency_supports({.least = 80}, feature_sets::kUnmapped),
                 [](const ForwardProblem& p, const PlanContext& context) -> std::string {
                   const int64_t memory = context.device.shared_memory_per_block;
                   if (choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, false, memory) >= 0)
                     return {};
                   return fmt::format("device: has {} bytes of shared memory per block, wanted {}",
                                      memory, kSmallSharedMemory);
                 });
}

}  // namespace flashcore::cuda::forward_sm80::latency
