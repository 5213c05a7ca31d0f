// What kernels of backward_sm90 refuse alike. No CUDA header is needed here, so that refusals are
// tested in every build.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
// `sizes`: the kernel's own sentence about head dimensions, or empty.
std::string common_refusal(const BackwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets, std::string_view sizes);

}  // namespace flashcore::cuda::backward_sm90
