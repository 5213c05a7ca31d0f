// The operations that differ between fp16 and bf16.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/packed_fma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_n112.cuh"
#include "cuda/ptx/wgmma_n160.cuh"
#include "cuda/ptx/wgmma_n192.cuh"
#include "cuda/ptx/wgmma_n80.cuh"
#include "cuda/ptx/wgmma_n96.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

struct Fp16 {
  // A lane's sum of a block's exponentials below this proves that P did not overflow fp16.
  static constexpr float kProvenSum = 0x1p15F;

  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_f16<kAccumulate, ptx::Major::k>(d, a, b);
  }
  template <int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_f16<ptx::Accumulate::add, ptx::Major::mn>(d, a, b);
  }
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  // Adds 0 * x to the sum, which stays 0 while all x are finite.
  __device__ static uint32_t add_zero_times(uint32_t x, uint32_t sum) {
    return ptx::fma_f16x2(x, 0, sum);
  }
  __device__ static float to_float(uint16_t bits) { return ptx::f16_to_float(bits); }
};

struct Bf16 {
  // bf16 has the range of fp32: this leaves headroom for a row's sum and for its products.
  static constexpr float kProvenSum = 0x1p30F;

  template <ptx::Accumulate kAccumulate, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_bf16<kAccumulate, ptx::Major::k>(d, a, b);
  }
  template <int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_bf16<ptx::Accumulate::add, ptx::Major::mn>(d, a, b);
  }
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  // Adds 0 * x to the sum, which stays 0 while all x are finite.
  __device__ static uint32_t add_zero_times(uint32_t x, uint32_t sum) {
    return ptx::fma_bf16x2(x, 0, sum);
  }
  __device__ static float to_float(uint16_t bits) { return ptx::bf16_to_float(bits); }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
