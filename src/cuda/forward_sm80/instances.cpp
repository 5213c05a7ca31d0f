// The table of compiled kernels.
#include "cuda/forward_sm80/config.hpp"
#include "cuda/forward_sm80/launch.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_sm80 {

static_assert(kCompiledConfigs == kConfigs.size() && kCompiledHalfConfigs == kHalfConfigs,
              "instances.cmake: sm80_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  const auto config = static_cast<std::size_t>(instance.config);
  if (instance.type == InputType::f32) return list[3 * kCompiledHalfConfigs + config];
  const std::size_t type = instance.type == InputType::f16 ? 0 : 1;
  return list[2 * (type * kCompiledHalfConfigs + config) + (instance.features ? 1 : 0)];
}

}  // namespace flashcore::cuda::forward_sm80
