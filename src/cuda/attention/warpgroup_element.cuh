// The elements of kernels whose warpgroups multiply: A and B in shared memory (ss), or A in registers (rs).
#pragma once

#include <cstdint>

#include "cuda/attention/element.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::attention::warpgroup {

using ptx::Accumulate, ptx::Major;

struct Fp16 : attention::Fp16 {
  template <Accumulate kAccumulate, Major kMajorA = Major::k, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_f16<kAccumulate, Major::k, kMajorA>(d, a, b);
  }
  // 256 columns; B is not transposed.
  __device__ static void multiply_ss(float (&d)[32][4], uint64_t a, uint64_t b,
                                     Accumulate accumulate) {
    ptx::wgmma_ss_f16<Major::mn>(d, a, b, accumulate);
  }
  template <Accumulate kAccumulate = Accumulate::add, Major kMajorB = Major::mn, int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_f16<kAccumulate, kMajorB>(d, a, b);
  }
};

struct Bf16 : attention::Bf16 {
  template <Accumulate kAccumulate, Major kMajorA = Major::k, int kProducts>
  __device__ static void multiply_ss(float (&d)[kProducts][4], uint64_t a, uint64_t b) {
    ptx::wgmma_ss_bf16<kAccumulate, Major::k, kMajorA>(d, a, b);
  }
  __device__ static void multiply_ss(float (&d)[32][4], uint64_t a, uint64_t b,
                                     Accumulate accumulate) {
    ptx::wgmma_ss_bf16<Major::mn>(d, a, b, accumulate);
  }
  template <Accumulate kAccumulate = Accumulate::add, Major kMajorB = Major::mn, int kProducts>
  __device__ static void multiply_rs(float (&d)[kProducts][4], const uint32_t (&a)[4], uint64_t b) {
    ptx::wgmma_rs_bf16<kAccumulate, kMajorB>(d, a, b);
  }
};

}  // namespace flashcore::cuda::attention::warpgroup
