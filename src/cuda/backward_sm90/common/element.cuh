// The operations that differ between fp16 and bf16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_n96.cuh"

namespace flashcore::cuda::backward_sm90 {

using ptx::Accumulate, ptx::Major;

struct Fp16 {
  template <Accumulate kAccumulate, Major kMajorA, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_f16<kAccumulate, Major::k, kMajorA>(d, a, b);
  }
  template <int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_f16<Accumulate::add, Major::mn>(d, a, b);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::f16_to_float(bits); }
  __device__ static float2 unpack(uint32_t pair) {
    return make_float2(to_float(static_cast<uint16_t>(pair & 0xffffU)),
                       to_float(static_cast<uint16_t>(pair >> 16)));
  }
};

struct Bf16 {
  template <Accumulate kAccumulate, Major kMajorA, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_bf16<kAccumulate, Major::k, kMajorA>(d, a, b);
  }
  template <int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_bf16<Accumulate::add, Major::mn>(d, a, b);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint16_t bits) { return ptx::bf16_to_float(bits); }
  // bf16 is the upper half of fp32.
  __device__ static float2 unpack(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
  }
};

}  // namespace flashcore::cuda::backward_sm90
