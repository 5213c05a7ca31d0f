// The arithmetic of one warp's part of a wgmma.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

inline constexpr int kWarpRows = 16;

// Adds the product to its accumulators' values, once; its operands stay in use until the wait.
void compute_product(Warp& warp, Product& product);

}  // namespace flashcore::sim
