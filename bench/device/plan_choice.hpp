// Chooses the device and kernel for a problem, from the options that every command has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What is planned: the forward pass of a problem or, with gradients, its backward pass.
struct Pass {
  Problem problem;
  std::optional<Gradients> gradients = std::nullopt;

  Result<Plan> plan(const PlanOptions& options) const;
  Result<std::vector<KernelVerdict>> explain(const PlanOptions& options) const;
};

struct PlanChoice {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N, sim, sim:N
  std::string kernel;           // empty: the best one that does not refuse
  int64_t threads = 0;
  bool batch_invariant = false;
  bool early_start = false;
  int64_t sim_seed = 0;
  bool any_order = false;  // backward: allow sums in any order
};

// FLASHCORE_KERNEL replaces --kernel, also in commands that look kernels up by name.
void take_forced_kernel();

struct ChosenPlan {
  DeviceInfo device;
  PlanOptions options;
  Plan plan;
  std::string note;  // why not the GPU, if there is one and --device is auto
};

std::string to_text(Device device);  // "cpu", "cuda:0", "sim:0"

DeviceInfo info_of(Device device);  // all zeros if the device is not there

// The devices that the options allow, best first, with all options filled in.
Result<std::vector<PlanOptions>> allowed_devices(const PlanChoice& choice);

// The GPU that --device names, with no kernel chosen; refuses the CPU.
Result<PlanOptions> gpu_plan(const std::string& device);

// The best device that computes the pass, and its plan.
Result<ChosenPlan> choose_plan(const Pass& pass, const PlanChoice& choice);

// The kernels to compare on a device, each with its refusal: the requested one, or all except the
// judges, "reference" and "naive". If there is no other kernel, "reference". Kernels that are not
// automatic (the ladder) only with `all`; for a backward pass only kernels that have one. With
// `names`, exactly these, in this order.
Result<std::vector<KernelVerdict>> kernels_under_test(const Pass& pass, const PlanOptions& options,
                                                      bool all,
                                                      std::vector<std::string> names = {});

}  // namespace flashcore::bench
