// The operations that differ between fp16 and bf16.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::forward_sm80::latency {

struct Fp16 {
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::f16_to_float(static_cast<uint16_t>(bits));
  }
};

struct Bf16 {
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::bf16_to_float(static_cast<uint16_t>(bits));
  }
};

}  // namespace flashcore::cuda::forward_sm80::latency
