// Stands for src/cuda/ptx/mma.cuh.
#pragma once

#include <cstdint>

#include "engine/warp_matrix.hpp"

namespace flashcore::cuda::ptx {

inline constexpr bool kHasE4m3Products = true;

inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                             sim::Site site = sim::Site::here()) {
  sim::multiply_m16n8(d, a, {b0, b1}, sim::ElementType::f16, site);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              sim::Site site = sim::Site::here()) {
  sim::multiply_m16n8(d, a, {b0, b1}, sim::ElementType::bf16, site);
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              sim::Site site = sim::Site::here()) {
  sim::multiply_m16n8(d, a, {b0, b1}, sim::ElementType::e4m3, site);
}

inline uint32_t transpose_8x8(uint32_t x, sim::Site site = sim::Site::here()) {
  return sim::transpose_matrix(x, site);
}

inline constexpr bool kMultipliesE4m3 = true;

}  // namespace flashcore::cuda::ptx
