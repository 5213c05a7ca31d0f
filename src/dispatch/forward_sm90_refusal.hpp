// What forward_sm90 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/kernels.hpp"

namespace flashcore {

// Which tile a kernel takes: the best of those that hold the head dimensions; or one of those up to
// head dimension 64, which are kernels for problems with a choice only.
enum class Sm90Tile { best = -1, tall = 0, low = 1, narrow = 2 };

// One sentence, or empty. `targets`: what the kernels were compiled for, as in cuda_support.hpp.
std::string forward_sm90_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                 std::string_view targets, Sm90Tile tile = Sm90Tile::best);

// Why it leaves a problem that it computes to forward_sm80: one sentence, or empty.
std::string forward_sm90_decline(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore
