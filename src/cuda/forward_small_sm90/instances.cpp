// The table of compiled kernels.
#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "cuda/tile/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_small_sm90 {

static_assert(kCompiledConfigs == kConfigs.size(), "instances.cmake: small_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return tile::find_listed(list, instance);
}

}  // namespace flashcore::cuda::forward_small_sm90
