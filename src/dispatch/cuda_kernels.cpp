#include "dispatch/cuda_kernels.hpp"

#include <utility>

#include "dispatch/forward_medium_sm90.hpp"
#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_sm90.hpp"
#include "dispatch/forward_small_sm80.hpp"
#include "dispatch/forward_small_sm90.hpp"
#include "dispatch/ladder_kernels.hpp"

namespace flashcore {

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> table = {forward_small_sm90_kernel(), forward_medium_sm90_kernel(),
                               forward_small_sm80_kernel()};
  for (Kernel& kernel : forward_sm90_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : forward_sm80_kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : ladder_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace flashcore
