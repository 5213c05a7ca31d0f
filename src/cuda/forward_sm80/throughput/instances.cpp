// The table of compiled kernels.
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/launch.hpp"
#include "cuda/host/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

static_assert(kCompiledConfigs == kConfigs.size() && kCompiledHalfConfigs == kHalfConfigs,
              "instances.cmake: sm80_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return host::find_listed(list, instance);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
