// What a kernel needs to know besides the problem.
#pragma once

#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct PlanContext {
  DeviceInfo device;
  int threads = 0;  // CPU; at least 1
  bool batch_invariant = false;
  bool early_start = false;  // CUDA: a launch may begin before earlier work in its stream has ended
  bool deterministic = true;  // backward: the same bits in every run
  // One of the kernel's `candidates` for the problem; empty: its own choice.
  std::string config = {};
};

}  // namespace flashcore
