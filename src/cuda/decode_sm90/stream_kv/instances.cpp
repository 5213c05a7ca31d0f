// The table of compiled kernels.
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/launch.hpp"
#include "cuda/host/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

static_assert(kCompiledConfigs == kConfigs.size(), "instances.cmake: decode90_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return host::find_listed(list, instance);
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
