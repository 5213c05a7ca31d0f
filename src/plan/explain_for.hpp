// Explains the plan for a GPU that need not be in this machine.
#pragma once

#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct ExplainedFor {
  std::vector<KernelVerdict> verdicts;
  std::string kernel;  // the kernel that would run the problem; empty: none
  std::string reason;  // why this kernel, or why none
};

// All properties of `gpu` but its memory must be known; `options.device` is ignored. Unsupported in
// a build without GPU kernels.
Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const PlanOptions& options);
Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const Gradients& gradients, const PlanOptions& options);

}  // namespace flashcore
