// Append on a GPU.
#pragma once

#include "flashcore/flashcore.hpp"
#include "problem/serving.hpp"

namespace flashcore::cuda::convert::append {

// Pointers are the GPU's, checked as far as the host can.
Status run(const AppendProblem& problem, const AppendArguments& args, const DeviceInfo& device,
           Stream stream);

}  // namespace flashcore::cuda::convert::append
