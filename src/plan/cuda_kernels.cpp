#include "plan/cuda_kernels.hpp"

#include <utility>

#include "cuda/forward_sm80/latency/plan.hpp"
#include "cuda/forward_sm80/throughput/plan.hpp"
#include "cuda/forward_sm90/latency/plan.hpp"
#include "cuda/forward_sm90/latency_wide/plan.hpp"
#include "cuda/forward_sm90/throughput/plan.hpp"
#include "cuda/ladder/plan.hpp"
#include "tuning/small_decision.hpp"

namespace flashcore {
namespace {

// For which problems it is the choice is not the kernel's own business: what was measured of it
// stands whatever the choice.
Kernel small_sm80() {
  Kernel kernel = forward_sm80_latency_kernel();
  kernel.automatic = true;
  kernel.declines = sm80_latency_declines;
  return kernel;
}

}  // namespace

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> table = {forward_sm90_latency_kernel(), forward_sm90_latency_wide_kernel()};
  for (Kernel& kernel : forward_sm90_throughput_kernels()) table.push_back(std::move(kernel));
  table.push_back(small_sm80());
  for (Kernel& kernel : forward_sm80_throughput_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : ladder_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace flashcore
