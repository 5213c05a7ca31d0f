// The table of compiled kernels.
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/launch.hpp"
#include "cuda/host/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

static_assert(kCompiledConfigs == kConfigs.size(), "instances.cmake: decode80_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return host::find_listed(list, instance);
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
