// The operations that differ between fp16 and bf16.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::forward_sm90 {

// Returns whether both 16-bit numbers are finite: neither exponent is all ones.
template <uint32_t kExponent>
__device__ inline bool are_finite(uint32_t two) {
  return (two & kExponent) != kExponent && (two >> 16 & kExponent) != kExponent;
}

struct Fp16 {
  static constexpr bool kIsFp16 = true;

  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_f16<kAccumulate, ptx::Major::k>(d, a, b);
  }
  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_f16<kAccumulate, ptx::Major::mn>(d, a, b);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::f16_to_float(static_cast<uint16_t>(bits));
  }
  // Tests both halves of a word.
  __device__ static bool is_finite(uint32_t two) { return are_finite<0x7c00U>(two); }
};

struct Bf16 {
  static constexpr bool kIsFp16 = false;

  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_bf16<kAccumulate, ptx::Major::k>(d, a, b);
  }
  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_bf16<kAccumulate, ptx::Major::mn>(d, a, b);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::bf16_to_float(static_cast<uint16_t>(bits));
  }
  __device__ static bool is_finite(uint32_t two) { return are_finite<0x7f80U>(two); }
};

}  // namespace flashcore::cuda::forward_sm90
