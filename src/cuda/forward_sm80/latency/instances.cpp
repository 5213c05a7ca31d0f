// The table of compiled kernels.
#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/host/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_sm80::latency {

static_assert(kCompiledConfigs == kConfigs.size(), "instances.cmake: small80_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return host::find_listed(list, instance);
}

}  // namespace flashcore::cuda::forward_sm80::latency
