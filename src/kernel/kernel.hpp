// What a kernel is: a name, a device, what it computes, and a plan. The table of
// them is plan/table.hpp; docs/adding-a-kernel.md says how to add one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "kernel/plan_context.hpp"
#include "kernel/supports.hpp"
#include "problem/backward.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// The configs (tiles, splits, blocks) that a kernel can compute a problem with, besides its own
// choice: names that PlanContext::config may have. Called only for problems that it does not refuse.
template <class AnyProblem>
using Candidates =
    std::function<std::vector<std::string>(const AnyProblem&, const PlanContext& context)>;

// A kernel bound to a problem. `run` gets checked pointers and at least workspace_bytes bytes.
struct PlannedKernel {
  size_t workspace_bytes = 0;
  std::function<Status(const Arguments&, std::span<std::byte> workspace, Stream)> run;
};

// The same for a backward pass.
struct PlannedBackward {
  size_t workspace_bytes = 0;
  std::function<Status(const BackwardArguments&, std::span<std::byte> workspace, Stream)> run;
};

// A kernel's backward pass, as Kernel has its forward pass; without `plan` it has none.
struct BackwardKernel {
  BackwardSupports supports = {};
  std::function<std::string(const BackwardProblem&, const PlanContext&)> declines = {};
  std::function<Result<PlannedBackward>(const BackwardProblem&, const PlanContext&)> plan = {};
  Candidates<BackwardProblem> candidates = {};
};

// What a kernel computes is a closed world: a pass that it has no plan for, and what its `supports` do
// not have, is refused for it (refusal_of).
struct Kernel {
  std::string name;
  DeviceKind device = DeviceKind::cpu;  // cuda: also the simulated GPUs
  bool automatic = true;  // false: runs only when asked for by name (the ladder, the reference)
  std::string_view by_name_because = {};  // a few words why, where that is not obvious
  bool tunable = false;           // not automatic, but a table of measurements may choose it
  bool wants_alignment = false;   // runs only where q, k, v and o are at multiples of 16 bytes
  std::string_view sources = {};  // what its sources are known by, if that is not its name
  std::string_view targets = {};  // CUDA: what it was compiled for, as in device_code.hpp
  // The forward pass; without `plan` the kernel has none.
  Supports supports = {};
  // One sentence why a kernel that computes the problem leaves it to those after it, where the
  // choice is free; empty (or absent) when it does not. May depend on what is fast, never on what
  // is right.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> declines = {};
  // Called only for problems that it does not refuse.
  std::function<Result<PlannedKernel>(const ForwardProblem&, const PlanContext&)> plan = {};
  Candidates<ForwardProblem> candidates = {};
  BackwardKernel backward = {};
};

// Whether a kernel has the pass that a problem is of.
inline bool computes(const Kernel& kernel, const ForwardProblem& /*pass*/) {
  return static_cast<bool>(kernel.plan);
}
inline bool computes(const Kernel& kernel, const BackwardProblem& /*pass*/) {
  return static_cast<bool>(kernel.backward.plan);
}

// One sentence why the kernel cannot compute the problem; empty when it can. `features`: those of the
// problem.
std::string refusal_of(const Kernel& kernel, const ForwardProblem& problem, Features features,
                       const PlanContext& context);
std::string refusal_of(const Kernel& kernel, const BackwardProblem& problem, Features features,
                       const PlanContext& context);
template <class AnyProblem>
std::string refusal_of(const Kernel& kernel, const AnyProblem& problem,
                       const PlanContext& context) {
  return refusal_of(kernel, problem, features_of(problem), context);
}

// Whether a kernel is one of those for a device.
inline bool runs_on(const Kernel& kernel, DeviceKind device) {
  return kernel.device == (device == DeviceKind::sim ? DeviceKind::cuda : device);
}

}  // namespace flashcore
