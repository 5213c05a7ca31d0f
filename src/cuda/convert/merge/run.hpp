// Merge on a GPU.
#pragma once

#include "flashcore/flashcore.hpp"
#include "problem/serving.hpp"

namespace flashcore::cuda::convert::merge {

// Pointers are the GPU's, checked as far as the host can.
Status run(const MergeProblem& problem, const MergeArguments& args, const DeviceInfo& device,
           Stream stream);

}  // namespace flashcore::cuda::convert::merge
