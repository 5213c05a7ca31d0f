// Stands for src/cuda/ptx/math.cuh.
#pragma once

#include <cstdint>

#include "cuda/ptx/exp2.cuh"
#include "engine/number_formats.hpp"

namespace flashcore::cuda::ptx {

inline uint32_t pack_f16x2(float low, float high) {
  return sim::f16_of(low) | uint32_t{sim::f16_of(high)} << 16;
}
inline uint32_t pack_bf16x2(float low, float high) {
  return sim::bf16_of(low) | uint32_t{sim::bf16_of(high)} << 16;
}
inline uint32_t pack_e4m3x4(float x0, float x1, float x2, float x3) {
  return sim::e4m3_of(x0) | uint32_t{sim::e4m3_of(x1)} << 8 | uint32_t{sim::e4m3_of(x2)} << 16 |
         uint32_t{sim::e4m3_of(x3)} << 24;
}
inline uint32_t e4m3x2_to_f16x2(uint32_t pair) {
  const float low = sim::of_e4m3(static_cast<uint8_t>(pair));
  const float high = sim::of_e4m3(static_cast<uint8_t>(pair >> 8));
  return pack_f16x2(low, high);
}

inline float f16_to_float(uint16_t bits) { return sim::of_f16(bits); }
inline float bf16_to_float(uint16_t bits) { return sim::of_bf16(bits); }

}  // namespace flashcore::cuda::ptx
