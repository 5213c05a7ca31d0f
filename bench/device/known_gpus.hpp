// GPUs by name, from their data sheets, for GPUs that are not in this machine. explain_for() says
// what plans would be on them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "plan/explain_for.hpp"

namespace flashcore::bench {

struct KnownGpu {
  std::string_view name;  // without "NVIDIA"
  int32_t compute_capability = 0;
  int32_t multiprocessors = 0;
  double highest_clock_mhz = 0;
  int64_t l2_bytes = 0;
  int64_t shared_memory_per_block = 0;
};

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kShared80 = 163 << 10, kShared86 = 99 << 10, kShared90 = 227 << 10;

// The representative of each compute capability comes first.
inline constexpr KnownGpu kKnownGpus[] = {
    {"A100", 80, 108, 1410, 40 * kMiB, kShared80},
    {"A30", 80, 56, 1440, 24 * kMiB, kShared80},
    {"A10", 86, 72, 1695, 6 * kMiB, kShared86},
    {"RTX 3090", 86, 82, 1695, 6 * kMiB, kShared86},
    {"L40S", 89, 142, 2520, 96 * kMiB, kShared86},
    {"L4", 89, 58, 2040, 48 * kMiB, kShared86},
    {"RTX 4090", 89, 128, 2520, 72 * kMiB, kShared86},
    {"H100", 90, 132, 1980, 50 * kMiB, kShared90},
    {"H100 PCIe", 90, 114, 1755, 50 * kMiB, kShared90},
    {"H200", 90, 132, 1980, 60 * kMiB, kShared90},
    {"B200", 100, 148, 1965, 126 * kMiB, kShared90},
    {"RTX 5090", 120, 170, 2407, 96 * kMiB, kShared86},
};

// Letters and digits only, in lower case: "NVIDIA H100-PCIe" becomes "h100pcie".
inline std::string plain_gpu_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) plain += static_cast<char>(std::tolower(letter));
  }
  return plain.starts_with("nvidia") ? plain.substr(6) : plain;
}

// Returns null for an unknown name.
inline const KnownGpu* find_gpu(std::string_view name) {
  const auto* const found = std::find_if(
      std::begin(kKnownGpus), std::end(kKnownGpus),
      [&](const KnownGpu& one) { return plain_gpu_name(one.name) == plain_gpu_name(name); });
  return found == std::end(kKnownGpus) ? nullptr : found;
}

// The representative of a compute capability (90), if there is one.
inline const KnownGpu* gpu_of(int32_t compute_capability) {
  const auto* const found = std::find_if(
      std::begin(kKnownGpus), std::end(kKnownGpus),
      [&](const KnownGpu& one) { return one.compute_capability == compute_capability; });
  return found == std::end(kKnownGpus) ? nullptr : found;
}

// "A100, A30, ..."
inline std::string known_gpu_names() {
  std::string names;
  for (const KnownGpu& one : kKnownGpus) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  }
  return names;
}

// "sm_80, sm_86, ..."
inline std::string known_capabilities() {
  std::string names;
  for (const KnownGpu& one : kKnownGpus) {
    if (gpu_of(one.compute_capability) != &one) continue;
    names += fmt::format("{}sm_{}", names.empty() ? "" : ", ", one.compute_capability);
  }
  return names;
}

// The GPU as a plan sees it; the name is the driver's, if it can be derived.
inline DeviceInfo device_info(const KnownGpu& gpu) {
  DeviceInfo info;
  info.device = {DeviceKind::cuda, 0};
  info.name = fmt::format("NVIDIA {}", gpu.name);
  info.compute_capability = gpu.compute_capability;
  info.multiprocessors = gpu.multiprocessors;
  info.shared_memory_per_block = gpu.shared_memory_per_block;
  return info;
}

}  // namespace flashcore::bench
