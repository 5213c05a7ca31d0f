#include "dispatch/cuda_kernels.hpp"

#include <utility>

#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_sm90.hpp"
#include "dispatch/ladder_kernels.hpp"

namespace flashcore {

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> table = {forward_sm90_kernel(), forward_sm80_kernel()};
  for (Kernel& kernel : ladder_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace flashcore
