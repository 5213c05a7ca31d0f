// The operations that differ between fp16 and bf16.
#pragma once

#include <cstdint>

#include "cuda/attention/element_type.hpp"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/packed_fma.cuh"

namespace flashcore::cuda::attention {

struct Fp16 {
  static constexpr bool kIsFp16 = true;
  static constexpr uint32_t kInfinity = 0x7c00, kOne = 0x3c00;

  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::f16_to_float(bits); }
  // Bits 0..15.
  __device__ static float to_float(uint32_t bits) { return to_float(static_cast<uint16_t>(bits)); }
  __device__ static float2 unpack(uint32_t pair) {
    return make_float2(to_float(static_cast<uint16_t>(pair & 0xffffU)),
                       to_float(static_cast<uint16_t>(pair >> 16)));
  }
  // Adds 0 * x to the sum, which stays 0 while all x are finite.
  __device__ static uint32_t add_zero_times(uint32_t x, uint32_t sum) {
    return ptx::fma_f16x2(x, 0, sum);
  }
};

struct Bf16 {
  static constexpr bool kIsFp16 = false;
  static constexpr uint32_t kInfinity = 0x7f80, kOne = 0x3f80;

  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::bf16_to_float(bits); }
  __device__ static float to_float(uint32_t bits) { return to_float(static_cast<uint16_t>(bits)); }
  // bf16 is the upper half of fp32.
  __device__ static float2 unpack(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
  }
  __device__ static uint32_t add_zero_times(uint32_t x, uint32_t sum) {
    return ptx::fma_bf16x2(x, 0, sum);
  }
};

// Elements of a type that is known only at run time: f32, f16 or bf16.
__device__ __forceinline__ float load_element(ElementType type, const void* data, int64_t at) {
  if (type == ElementType::f32) return __ldg(static_cast<const float*>(data) + at);
  const uint16_t bits = __ldg(static_cast<const uint16_t*>(data) + at);
  return type == ElementType::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
}

__device__ __forceinline__ uint32_t pack_pair(ElementType type, float low, float high) {
  return type == ElementType::f16 ? ptx::pack_f16x2(low, high) : ptx::pack_bf16x2(low, high);
}

__device__ __forceinline__ void store_element(ElementType type, void* data, int64_t at, float x) {
  if (type == ElementType::f32) {
    static_cast<float*>(data)[at] = x;
  } else {
    static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(pack_pair(type, x, 0));
  }
}

}  // namespace flashcore::cuda::attention
