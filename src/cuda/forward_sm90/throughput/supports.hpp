// Problems that forward_sm90_throughput does not support. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// The tile that a kernel takes: the best one for the head dimensions, or a fixed one of those up
// to head dimension 64, each of which is a kernel row because a problem has a choice only there.
// `pages`: keys and values are paged, and head dimensions have one tile.
enum class TileChoice { pages = -2, best = -1, q192_kv128 = 0, q64_kv128 = 1, q64_kv64 = 2 };

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, TileChoice tile = TileChoice::best);

}  // namespace flashcore::cuda::forward_sm90::throughput
