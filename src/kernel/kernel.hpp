// What a kernel is: a name, a device, one sentence for what it refuses, and a plan. The table of
// them is plan/table.hpp; docs/adding-a-kernel.md says how to add one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// What a kernel needs to know besides the problem.
struct PlanContext {
  DeviceInfo device;
  int threads = 0;  // CPU; at least 1
  bool batch_invariant = false;
  bool early_start = false;  // CUDA: a launch may begin before earlier work in its stream has ended
};

// A kernel bound to a problem. `run` gets checked pointers and at least workspace_bytes bytes.
struct PlannedKernel {
  size_t workspace_bytes = 0;
  std::function<Status(const Arguments&, std::span<std::byte> workspace, Stream)> run;
};

struct Kernel {
  std::string name;
  DeviceKind device = DeviceKind::cpu;  // cuda: also the simulated GPUs
  bool automatic = true;  // false: runs only when asked for by name (the ladder, the reference)
  bool wants_alignment = false;   // runs only where q, k, v and o are at multiples of 16 bytes
  std::string_view targets = {};  // CUDA: what it was compiled for, as in device_code.hpp
  // One sentence why the kernel cannot compute the problem; empty when it can.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> refuses;
  // One sentence why a kernel that computes the problem leaves it to those after it, where the
  // choice is free; empty (or absent) when it does not. May depend on what is fast, never on what
  // is right.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> declines = {};
  // Called only for problems that it does not refuse.
  std::function<Result<PlannedKernel>(const ForwardProblem&, const PlanContext&)> plan;
};

// Whether a kernel is one of those for a device.
inline bool runs_on(const Kernel& kernel, DeviceKind device) {
  return kernel.device == (device == DeviceKind::sim ? DeviceKind::cuda : device);
}

}  // namespace flashcore
