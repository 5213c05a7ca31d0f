// Former names of kernels: a request for a former name is answered with the new one.
#pragma once

#include <array>
#include <string_view>

namespace flashcore {

struct FormerName {
  std::string_view former, now;
};

inline constexpr std::array kFormerNames = {
    FormerName{"forward_sm90", "forward_sm90_throughput"},
    FormerName{"forward_sm90_tall", "forward_sm90_192x128"},
    FormerName{"forward_sm90_low", "forward_sm90_64x128"},
    FormerName{"forward_sm90_narrow", "forward_sm90_64x64"},
    FormerName{"forward_small_sm90", "forward_sm90_latency"},
    FormerName{"forward_medium_sm90", "forward_sm90_latency_wide"},
    FormerName{"forward_sm80", "forward_sm80_throughput"},
    FormerName{"forward_sm80_split", "forward_sm80_split_kv"},
    FormerName{"forward_sm80_dropout_state", "forward_sm80_throughput"},
    FormerName{"forward_small_sm80", "forward_sm80_latency"},
};

// Returns "" if `name` is not a former name.
constexpr std::string_view present_name(std::string_view name) {
  for (const FormerName& one : kFormerNames) {
    if (one.former == name) return one.now;
  }
  return {};
}

}  // namespace flashcore
