// Stands for src/cuda/ptx/ldmatrix.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/access.hpp"
#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline uint32_t shared_address(const void* pointer, sim::Site site = sim::Site::here()) {
  return sim::shared_address(pointer, site);
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t row_address,
                        sim::Site site = sim::Site::here()) {
  sim::load_matrices(r, row_address, false, site);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row_address,
                              sim::Site site = sim::Site::here()) {
  sim::load_matrices(r, row_address, true, site);
}
inline void stmatrix_x4(uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3,
                        sim::Site site = sim::Site::here()) {
  sim::store_matrices(row_address, {r0, r1, r2, r3}, false, site);
}

inline void stmatrix_x4_trans(uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2,
                              uint32_t r3, sim::Site site = sim::Site::here()) {
  sim::store_matrices(row_address, {r0, r1, r2, r3}, true, site);
}

}  // namespace flashcore::cuda::ptx
