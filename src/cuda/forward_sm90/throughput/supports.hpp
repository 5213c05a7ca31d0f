// What forward_sm90_throughput does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Which tile a kernel takes: the best of those that hold the head dimensions; or one of those up to
// head dimension 64, which are kernels for problems with a choice only.
// `pages`: keys and values lie in pages, and head dimensions have one tile.
enum class TileChoice { pages = -2, best = -1, q192_kv128 = 0, q64_kv128 = 1, q64_kv64 = 2 };

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, TileChoice tile = TileChoice::best);

}  // namespace flashcore::cuda::forward_sm90::throughput
