#include "dispatch/cuda_kernels.hpp"

#include <utility>

#include "dispatch/forward_medium_sm90.hpp"
#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_sm90.hpp"
#include "dispatch/forward_small_sm80.hpp"
#include "dispatch/forward_small_sm90.hpp"
#include "dispatch/ladder_kernels.hpp"
#include "dispatch/small_decision.hpp"

namespace flashcore {
namespace {

// For which problems it is the choice is not the kernel's own business: what was measured of it
// stands whatever the choice.
Kernel small_sm80() {
  Kernel kernel = forward_small_sm80_kernel();
  kernel.automatic = true;
  kernel.declines = small_sm80_declines;
  return kernel;
}

}  // namespace

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> table = {forward_small_sm90_kernel(), forward_medium_sm90_kernel()};
  for (Kernel& kernel : forward_sm90_kernels()) table.push_back(std::move(kernel));
  table.push_back(small_sm80());
  for (Kernel& kernel : forward_sm80_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : ladder_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace flashcore
