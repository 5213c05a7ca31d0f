// Stands for src/cuda/ptx/e5m2.cuh.
#pragma once

#include <cstdint>

#include "engine/byte_types.hpp"
#include "engine/number_formats.hpp"
#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline uint32_t pack_e5m2x2(float x0, float x1) {
  return sim::e5m2_of(x0) | uint32_t{sim::e5m2_of(x1)} << 8;
}
inline void mma_m16n8k32_e5m2(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              sim::Site site = sim::Site::here()) {
  sim::multiply_m16n8(d, a, {b0, b1}, sim::kE5M2Elements, site);
}

}  // namespace flashcore::cuda::ptx
