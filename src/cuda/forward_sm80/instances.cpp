// The table of compiled kernels.
#include <algorithm>

#include "cuda/forward_sm80/config.hpp"
#include "cuda/forward_sm80/launch.hpp"
#include "instance_list.hpp"

namespace flashcore::cuda::forward_sm80 {

static_assert(kCompiledConfigs == kConfigs.size() && kCompiledHalfConfigs == kHalfConfigs,
              "instances.cmake: sm80_configs");

const InstanceEntry& find_instance(const Instance& instance) {
  static const auto list = instance_list();
  return std::find_if(list.begin(), list.end() - 1,
                      [&](const ListedInstance& one) { return one.instance == instance; })
      ->entry;
}

}  // namespace flashcore::cuda::forward_sm80
