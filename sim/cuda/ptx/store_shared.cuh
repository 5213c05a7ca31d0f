// Stands for src/cuda/ptx/store_shared.cuh.
#pragma once

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline void store_shared_x4(uint32_t address, const float (&x)[4],
                            sim::Site site = sim::Site::here()) {
  sim::store_shared(address, x, sizeof x, site);
}

inline void store_shared_x4(uint32_t address, const uint32_t (&x)[4],
                            sim::Site site = sim::Site::here()) {
  sim::store_shared(address, x, sizeof x, site);
}

}  // namespace flashcore::cuda::ptx
