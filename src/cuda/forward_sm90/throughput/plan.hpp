// forward_sm90_throughput as rows of the table of kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Which row of kConfigs computes a problem, of those that tile_candidates() has.
using ChooseTile = int (*)(const ForwardProblem& seen, const DeviceInfo& device);

// The first chooses between its tiles; by name, each for any problem that it holds.
std::vector<Kernel> kernels(ChooseTile choose_tile);

// For keys and values in pages.
Kernel paged_kernel();

}  // namespace flashcore::cuda::forward_sm90::throughput
