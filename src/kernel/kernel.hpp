// What a kernel is: a name, a device, one sentence for what it refuses, and a plan. The table of
// them is plan/table.hpp; docs/adding-a-kernel.md says how to add one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// What a kernel needs to know besides the problem.
struct PlanContext {
  DeviceInfo device;
  int threads = 0;  // CPU; at least 1
  bool batch_invariant = false;
  bool early_start = false;  // CUDA: a launch may begin before earlier work in its stream has ended
  bool deterministic = true;  // backward: the same bits in every run
  // One of the kernel's `candidates` for the problem; empty: its own choice.
  std::string config = {};
};

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
  std::function<std::string(const BackwardProblem&, const PlanContext&)> refuses = {};
  std::function<std::string(const BackwardProblem&, const PlanContext&)> declines = {};
  std::function<Result<PlannedBackward>(const BackwardProblem&, const PlanContext&)> plan = {};
  Candidates<BackwardProblem> candidates = {};
};

// Of which types of fp8 Q, K and V may be at once: one for all; one for Q and one for K and V; any for
// each. (Under a wider Q, K and V are of one, or of any.)
enum class Fp8Types { one, kv_apart, any };

// What a kernel computes is a closed world: a pass that it has no plan for, and what it does not
// say here, is refused for it (refusal_of).
struct Kernel {
  std::string name;
  DeviceKind device = DeviceKind::cpu;  // cuda: also the simulated GPUs
  bool automatic = true;  // false: runs only when asked for by name (the ladder, the reference)
  std::string_view by_name_because = {};  // a few words why, where that is not obvious
  bool tunable = false;              // not automatic, but a table of measurements may choose it
  bool wants_alignment = false;      // runs only where q, k, v and o are at multiples of 16 bytes
  bool reads_dropout_state = false;  // takes the seed and offset of dropout from memory
  bool reads_caches = false;         // K and V in pages, padded on the left, or fp8 under a wider Q
  bool reads_tree_masks = false;     // of speculative trees
  bool reads_transposed_v = false;   // V stored transposed
  Fp8Types fp8_types = Fp8Types::one;  // that it takes
  bool scales_o = false;               // divides an fp8 O by its scale
  bool writes_largest = false;         // amax_o and amax_s
  std::string_view sources = {};       // what its sources are known by, if that is not its name
  std::string_view targets = {};       // CUDA: what it was compiled for, as in device_code.hpp
  // The forward pass; without `plan` the kernel has none.
  // One sentence why the kernel cannot compute the problem; empty when it can.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> refuses = {};
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

// One sentence why the kernel cannot compute the problem; empty when it can. What no kernel computes
// without saying so is refused here, in the same words for all; the rest is the kernel's own.
std::string refusal_of(const Kernel& kernel, const ForwardProblem& problem,
                       const PlanContext& context);
std::string refusal_of(const Kernel& kernel, const BackwardProblem& problem,
                       const PlanContext& context);

// Whether a kernel is one of those for a device.
inline bool runs_on(const Kernel& kernel, DeviceKind device) {
  return kernel.device == (device == DeviceKind::sim ? DeviceKind::cuda : device);
}

}  // namespace flashcore
