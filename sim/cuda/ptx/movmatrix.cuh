// Stands for src/cuda/ptx/movmatrix.cuh.
#pragma once

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline uint32_t transpose_8x8(uint32_t x, sim::Site site = sim::Site::here()) {
  return sim::transpose_matrix(x, site);
}

}  // namespace flashcore::cuda::ptx
