// The operations that differ between the types of Q, and the exact conversion of fp8 keys and values.
#pragma once

#include <cstdint>

#include "cuda/attention/element.cuh"

namespace flashcore::cuda::attention::decode {

struct Fp16 : attention::Fp16 {
  // Factor of a probability's first term, and the least magnitude of its second: see Terms.
  static constexpr float kBelow = 1 - 0x1p-11F, kLeast = 0x1p-24F;
  __device__ static uint32_t of_f16x2(uint32_t pair) { return pair; }
};

struct Bf16 : attention::Bf16 {
  static constexpr float kBelow = 1 - 0x1p-8F, kLeast = 0x1p-126F;
  // Exact for all fp8 values.
  __device__ static uint32_t of_f16x2(uint32_t pair) {
    return ptx::pack_bf16x2(ptx::f16_to_float(static_cast<uint16_t>(pair)),
                            ptx::f16_to_float(static_cast<uint16_t>(pair >> 16)));
  }
};

// The exponents of both halves of a word: all ones in a half that is not finite.
template <class Element>
inline constexpr uint32_t kExponents = Element::kInfinity << 16 | Element::kInfinity;

// Two probabilities, each as two 16-bit terms: one term is too coarse if few keys count, or if scales make
// values large. Both terms have the probability's sign and the second is never 0, so that an infinite
// value gives the same result as with one term. Both are 0 for 0, as for keys that are not visible.
struct Terms {
  uint32_t first, second;
};
template <class Element>
__device__ __forceinline__ float second_term(float x, uint16_t first) {
  const float rest = fmaxf(fabsf(x - Element::to_float(first)), Element::kLeast);
  return x == 0 ? 0 : copysignf(rest, x);
}
template <class Element>
__device__ __forceinline__ Terms terms_of(float low, float high) {
  const uint32_t first = Element::pack(low * Element::kBelow, high * Element::kBelow);
  return {first, Element::pack(second_term<Element>(low, static_cast<uint16_t>(first)),
                               second_term<Element>(high, static_cast<uint16_t>(first >> 16)))};
}

// Converts two fp8 values, in bits 0..15, to Q's type. e5m2 is the upper half of fp16.
template <class Element>
__device__ __forceinline__ uint32_t of_fp8x2(uint32_t pair, bool e5m2) {
  return Element::of_f16x2(e5m2 ? __byte_perm(pair, 0, 0x1404) : ptx::e4m3x2_to_f16x2(pair));
}

// Returns bytes 0 and 2, or 1 and 3, of a word in bits 0..15.
__device__ __forceinline__ uint32_t even_bytes(uint32_t word) {
  return __byte_perm(word, 0, 0x4420);
}
__device__ __forceinline__ uint32_t odd_bytes(uint32_t word) {
  return __byte_perm(word, 0, 0x4431);
}

}  // namespace flashcore::cuda::attention::decode
