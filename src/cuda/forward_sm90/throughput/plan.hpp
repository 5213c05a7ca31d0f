// forward_sm90_throughput as rows of the kernel table.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Chooses the row of kConfigs that computes a problem, among tile_candidates().
using ChooseTile = int (*)(const ForwardProblem& seen, const DeviceInfo& device);

// The first kernel chooses between its tiles; each of the others, run by name, computes any problem that fits.
std::vector<Kernel> kernels(ChooseTile choose_tile);

// The kernel for paged keys and values.
Kernel paged_kernel();

}  // namespace flashcore::cuda::forward_sm90::throughput
