// The table of compiled kernels with options.
#include <array>
#include <cstddef>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/option_launch.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

OptionEntry options_e4m3_64();
OptionEntry options_e4m3_128();
OptionEntry options_e4m3_256();
OptionEntry options_e5m2_64();
OptionEntry options_e5m2_128();
OptionEntry options_e5m2_256();

const OptionEntry& find_option_instance(int config, bool e5m2) {
  using Entries = std::array<OptionEntry, kOptionConfigs.size()>;
  static const Entries e4m3 = {options_e4m3_64(), options_e4m3_128(), options_e4m3_256()};
  static const Entries of_e5m2 = {options_e5m2_64(), options_e5m2_128(), options_e5m2_256()};
  return (e5m2 ? of_e5m2 : e4m3)[static_cast<std::size_t>(config)];
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
