// forward_sm90_throughput as a row of the kernel table.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Chooses the row of kConfigs that computes a problem, among tile_candidates().
using ChooseTile = int (*)(const ForwardProblem& seen, const DeviceInfo& device);

// The plain one, whose configs are its tiles, and the one for paged keys and values.
std::vector<Variant> variants(ChooseTile choose_tile);

}  // namespace flashcore::cuda::forward_sm90::throughput
