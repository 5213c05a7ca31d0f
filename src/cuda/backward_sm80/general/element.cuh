// The operations that differ between the types of the computation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/backward_sm80/general/params.hpp"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::backward_sm80::general {

struct Fp16 {
  static constexpr uint32_t kInfinity = 0x7c00, kOne = 0x3c00;
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
};

struct Bf16 {
  static constexpr uint32_t kInfinity = 0x7f80, kOne = 0x3f80;
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
};

// Also used if types are mixed: each element is converted to fp32 when loaded.
struct Fp32 {
  static constexpr uint32_t kInfinity = 0x7f800000, kOne = 0x3f800000;
};

template <class Element>
inline constexpr bool kIsFp32 = std::is_same_v<Element, Fp32>;
template <class Element>
inline constexpr int kElementBytes = kIsFp32<Element> ? 4 : 2;

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

// Stores two neighbours at an even column of a target whose pairs may be stored at once.
__device__ __forceinline__ void store_pair(ElementType type, void* data, int64_t at, float low,
                                           float high) {
  if (type == ElementType::f32) {
    *reinterpret_cast<float2*>(static_cast<float*>(data) + at) = make_float2(low, high);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(data) + at) = pack_pair(type, low, high);
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
