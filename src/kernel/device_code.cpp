#include "kernel/device_code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace flashcore {
namespace {

// What code for one target ("80", "80+ptx", "90a") does on a compute capability.
DeviceCode code_of(std::string_view target, int32_t compute_capability) {
  constexpr std::string_view kPtx = "+ptx";
  const bool ptx = target.ends_with(kPtx);
  if (ptx) target.remove_suffix(kPtx.size());
  int32_t number = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), number);
  if (error != std::errc()) return DeviceCode::none;
  const bool this_one_only = end != target.data() + target.size();  // "a": architecture-specific
  if (this_one_only) {
    return number == compute_capability ? DeviceCode::compiled : DeviceCode::none;
  }
  if (number > compute_capability) return DeviceCode::none;
  if (number / 10 == compute_capability / 10) return DeviceCode::compiled;
  return ptx ? DeviceCode::ptx : DeviceCode::none;
}

}  // namespace

DeviceCode device_code(std::string_view targets, int32_t compute_capability) {
  DeviceCode best = DeviceCode::none;
  while (!targets.empty()) {
    const size_t end = targets.find(';');
    best = std::max(best, code_of(targets.substr(0, end), compute_capability));
    targets.remove_prefix(end == std::string_view::npos ? targets.size() : end + 1);
  }
  return best;
}

bool built_for(std::string_view targets, int32_t compute_capability) {
  return device_code(targets, compute_capability) != DeviceCode::none;
}

std::string refuse_code(std::string_view targets, int32_t compute_capability) {
  if (built_for(targets, compute_capability)) return {};
  return fmt::format("device: compute capability is {}, this build has code for {}",
                     capability_text(compute_capability),
                     targets.empty() ? "none, for this kernel" : targets);
}

std::string capability_text(int32_t compute_capability) {
  return fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
}

}  // namespace flashcore
