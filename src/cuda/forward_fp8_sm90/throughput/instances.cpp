// The table of compiled kernels.
#include "cuda/forward_fp8_sm90/throughput/launch.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

InstanceEntry d64();
InstanceEntry d128();
InstanceEntry d128_three();
ColumnsEntry columns_d64();
ColumnsEntry columns_d128();
ColumnsEntry columns_d128_three();

const InstanceEntry& find_instance(int config) {
  static const std::array list = {d64(), d128(), d128_three()};
  static_assert(list.size() == kConfigs.size());
  return list[static_cast<std::size_t>(config)];
}

const ColumnsEntry& find_columns_instance(int config) {
  static const std::array list = {columns_d64(), columns_d128(), columns_d128_three()};
  static_assert(list.size() == kConfigs.size());
  return list[static_cast<std::size_t>(config)];
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
