// What a plan would be on a GPU that need not be here.
#pragma once

#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct ExplainedFor {
  std::vector<KernelVerdict> verdicts;
  std::string kernel;  // that runs the problem; empty: none
  std::string reason;  // why it, or why none
};

// Of a GPU of which all but its memory is known; `options.device` is not looked at. Unsupported in a
// build without the kernels of GPUs.
Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const PlanOptions& options);
Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const Gradients& gradients, const PlanOptions& options);

}  // namespace flashcore
