// Stands for src/cuda/ptx/packed_fma.cuh.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/number_formats.hpp"

namespace flashcore::cuda::ptx {

// Rounded once: a product of fp16 or bf16 is exact in double, and so is the sum unless it is so
// wide that the smaller part only decides a tie.
inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  return sim::fused_halves(a, b, c, sim::of_f16, sim::f16_of);
}
inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  return sim::fused_halves(a, b, c, sim::of_bf16, sim::bf16_of);
}

}  // namespace flashcore::cuda::ptx
