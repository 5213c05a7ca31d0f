// backward_sm90 as a row of the kernel table.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

// With a cluster of blocks per tile, for problems with few tiles (split/), the plain one, and one with
// what pairs have besides a product: bias, mask, ALiBi, dropout.
std::vector<Variant> variants();

}  // namespace flashcore::cuda::backward_sm90::throughput
