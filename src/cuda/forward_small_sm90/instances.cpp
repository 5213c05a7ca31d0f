// The table of compiled kernels.
#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_small_sm90 {

static_assert(kCompiledConfigs == kConfigs.size(), "instances.cmake: small_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  const std::size_t type = instance.type == InputType::f16 ? 0 : 1;
  const std::size_t row = type * kCompiledConfigs + static_cast<std::size_t>(instance.config);
  return list[3 * row + static_cast<std::size_t>(instance.cover)];
}

}  // namespace flashcore::cuda::forward_small_sm90
