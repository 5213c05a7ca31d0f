// Launching forward_sm90_latency: the host's side, without CUDA headers' device code.
#pragma once

#include "cuda/forward_sm90/common/launch.hpp"

namespace flashcore::cuda::forward_sm90::latency {

// Which compiled kernel: kConfigs[config], its type, and what it may take for granted.
struct Instance {
  InputType type;
  int config;
  Cover cover;

  bool operator==(const Instance&) const = default;
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

}  // namespace flashcore::cuda::forward_sm90::latency
