// What forward_sm90_throughput does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore {

// Which tile a kernel takes: the best of those that hold the head dimensions; or one of those up to
// head dimension 64, which are kernels for problems with a choice only.
enum class Sm90Tile { best = -1, q192_kv128 = 0, q64_kv128 = 1, q64_kv64 = 2 };

// One sentence, or empty. `targets`: what the kernels were compiled for, as in cuda_support.hpp.
std::string forward_sm90_throughput_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                            std::string_view targets,
                                            Sm90Tile tile = Sm90Tile::best);

// Why it leaves a problem that it computes to forward_sm80_throughput: one sentence, or empty.
std::string forward_sm90_decline(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore
