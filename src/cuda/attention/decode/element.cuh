// What differs between the types of Q, and how fp8 keys and values become it, exactly.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::attention::decode {

struct Fp16 {
  static constexpr uint32_t kExponents = 0x7c007c00U;  // all ones: not finite
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::f16_to_float(bits); }
  __device__ static uint32_t of_f16x2(uint32_t pair) { return pair; }
};

struct Bf16 {
  static constexpr uint32_t kExponents = 0x7f807f80U;
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::bf16_to_float(bits); }
  // Exact for what fp8 holds.
  __device__ static uint32_t of_f16x2(uint32_t pair) {
    return ptx::pack_bf16x2(ptx::f16_to_float(static_cast<uint16_t>(pair)),
                            ptx::f16_to_float(static_cast<uint16_t>(pair >> 16)));
  }
};

// Two fp8 values, in bits 0..15, as two of Q's type. e5m2 is the upper half of fp16.
template <class Element>
__device__ __forceinline__ uint32_t of_fp8x2(uint32_t pair, bool e5m2) {
  return Element::of_f16x2(e5m2 ? __byte_perm(pair, 0, 0x1404) : ptx::e4m3x2_to_f16x2(pair));
}

// Bytes 0 and 2, or 1 and 3, of a word in bits 0..15.
__device__ __forceinline__ uint32_t even_bytes(uint32_t word) {
  return __byte_perm(word, 0, 0x4420);
}
__device__ __forceinline__ uint32_t odd_bytes(uint32_t word) {
  return __byte_perm(word, 0, 0x4431);
}

}  // namespace flashcore::cuda::attention::decode
