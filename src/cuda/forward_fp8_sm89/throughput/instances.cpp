// The table of compiled kernels.
#include <array>
#include <cstddef>

#include "cuda/forward_fp8_sm89/throughput/launch.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

InstanceEntry d64();
InstanceEntry d128();
InstanceEntry d256();

const InstanceEntry& find_instance(int config) {
  static const std::array list = {d64(), d128(), d256()};
  static_assert(list.size() == kConfigs.size());
  return list[static_cast<std::size_t>(config)];
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
