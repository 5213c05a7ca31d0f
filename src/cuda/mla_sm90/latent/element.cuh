// The operations that differ between fp16 and bf16.
#pragma once

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_n256.cuh"

namespace flashcore::cuda::mla_sm90::latent {

struct Fp16 {
  template <ptx::Accumulate kAccumulate>
  __device__ static void multiply(float (&s)[8][4], const uint32_t (&q)[4], uint64_t k) {
    ptx::wgmma_rs_f16<kAccumulate, ptx::Major::k>(s, q, k);
  }
  __device__ static void add(float (&s)[8][4], uint64_t q, uint64_t k) {
    ptx::wgmma_ss_f16<ptx::Accumulate::add, ptx::Major::k>(s, q, k);
  }
  __device__ static void multiply(float (&o)[32][4], uint64_t p, uint64_t v,
                                  ptx::Accumulate accumulate) {
    ptx::wgmma_ss_f16<ptx::Major::mn>(o, p, v, accumulate);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::f16_to_float(static_cast<uint16_t>(bits));
  }
};

struct Bf16 {
  template <ptx::Accumulate kAccumulate>
  __device__ static void multiply(float (&s)[8][4], const uint32_t (&q)[4], uint64_t k) {
    ptx::wgmma_rs_bf16<kAccumulate, ptx::Major::k>(s, q, k);
  }
  __device__ static void add(float (&s)[8][4], uint64_t q, uint64_t k) {
    ptx::wgmma_ss_bf16<ptx::Accumulate::add, ptx::Major::k>(s, q, k);
  }
  __device__ static void multiply(float (&o)[32][4], uint64_t p, uint64_t v,
                                  ptx::Accumulate accumulate) {
    ptx::wgmma_ss_bf16<ptx::Major::mn>(o, p, v, accumulate);
  }
  __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16x2(low, high); }
  __device__ static float to_float(uint32_t bits) {
    return ptx::bf16_to_float(static_cast<uint16_t>(bits));
  }
};

}  // namespace flashcore::cuda::mla_sm90::latent
