// Stands for src/cuda/ptx/stmatrix_trans.cuh.
#pragma once

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline void stmatrix_x4_trans(uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2,
                              uint32_t r3, sim::Site site = sim::Site::here()) {
  sim::store_matrices(row_address, {r0, r1, r2, r3}, true, site);
}

}  // namespace flashcore::cuda::ptx
