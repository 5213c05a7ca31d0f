// What a kernel is: its variants. A variant has a device, what it computes, and a plan. The table of
// kernels is plan/table.hpp; docs/adding-a-kernel.md says how to add one.
#pragma once

#include <algorithm>
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

// A planned backward pass.
struct PlannedBackward {
  size_t workspace_bytes = 0;
  std::function<Status(const BackwardArguments&, std::span<std::byte> workspace, Stream)> run;
};

// A variant's backward pass, as Variant has its forward pass; without `plan` it has none.
struct BackwardKernel {
  BackwardSupports supports = {};
  std::function<std::string(const BackwardProblem&, const PlanContext&)> declines = {};
  std::function<Result<PlannedBackward>(const BackwardProblem&, const PlanContext&)> plan = {};
  Candidates<BackwardProblem> candidates = {};
};

// One way in which a kernel computes problems. What it computes is a closed world: a pass that it has
// no plan for, and what its `supports` do not have, is refused for it (refusal_of).
struct Variant {
  // The kernel's; but for the plain variant also its own: "forward_sm80_throughput:fp8".
  std::string name;
  DeviceKind device = DeviceKind::cpu;  // cuda: also the simulated GPUs
  bool automatic = true;  // false: runs only when asked for by name (the ladder, the reference)
  std::string_view not_automatic_reason = {};  // a few words why, where that is not obvious
  // One sentence why an automatic variant gets a problem that it computes only by name, or empty.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> by_name_where = {};
  bool tunable = false;           // not automatic, but a table of measurements may choose it
  bool wants_alignment = false;   // runs only where q, k, v and o are at multiples of 16 bytes
  std::string_view sources = {};  // what its sources are known by, if that is not the kernel's name
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
  // What its own choice is called among configs, where it has a name.
  std::function<std::string(const ForwardProblem&, const PlanContext&)> own_config = {};
  // Where it only converts tensors, which kernel computes the rest: "bf16 by decode_sm80".
  std::function<std::string(const ForwardProblem&, const PlanContext&)> inner = {};
  BackwardKernel backward = {};
};

// A kernel: variants in the order in which they are chosen. A row of the table.
struct Kernel {
  std::string_view name;
  std::span<const Variant> variants;
};

// The kernel's part of a variant's name, and the variant's own, which is empty for the plain one.
constexpr std::string_view kernel_part(std::string_view name) {
  return name.substr(0, name.find(':'));
}
constexpr std::string_view variant_part(std::string_view name) {
  return name.substr(std::min(kernel_part(name).size() + 1, name.size()));
}

// Returns whether a variant computes the pass of a problem. supports_of: what it supports of it.
inline bool computes(const Variant& variant, const ForwardProblem& /*pass*/) {
  return static_cast<bool>(variant.plan);
}
inline bool computes(const Variant& variant, const BackwardProblem& /*pass*/) {
  return static_cast<bool>(variant.backward.plan);
}
inline const Supports& supports_of(const Variant& variant, const ForwardProblem& /*pass*/) {
  return variant.supports;
}
inline const BackwardSupports& supports_of(const Variant& variant,
                                           const BackwardProblem& /*pass*/) {
  return variant.backward.supports;
}

// One sentence why the variant cannot compute the problem; empty when it can. `features`: what
// features_of finds in the problem.
std::string refusal_of(const Variant& variant, const ForwardProblem& problem, Features features,
                       const PlanContext& context);
std::string refusal_of(const Variant& variant, const BackwardProblem& problem, Features features,
                       const PlanContext& context);
template <class AnyProblem>
std::string refusal_of(const Variant& variant, const AnyProblem& problem,
                       const PlanContext& context) {
  return refusal_of(variant, problem, features_of(problem), context);
}

// Returns whether a variant runs on devices of this kind.
inline bool runs_on(const Variant& variant, DeviceKind device) {
  return variant.device == (device == DeviceKind::sim ? DeviceKind::cuda : device);
}

}  // namespace flashcore
