// The table of compiled kernels.
#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/split/launch.hpp"
#include "cuda/host/instance_list.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::backward_sm90::split {

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return host::find_listed(list, instance);
}

}  // namespace flashcore::cuda::backward_sm90::split
