// The operations that differ between input types.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/element.cuh"
#include "cuda/forward_sm80/throughput/params.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// Weights by which a pass over values counts NaN and infinities: each attended one adds its weight, 1
// for +infinity, so the sum tells which kinds occurred. (Exact below 2^10 of +infinity in a column.)
inline constexpr float kNegativeInfinityWeight = 0x1p-14F, kNanWeight = 0x1p15F;

// The probabilities in that pass under dropout. A dropped pair, 0 * infinity, adds
// at least a NaN's weight. Both values fit fp16; the sum must be divided by `kept`.
struct DropoutWeights {
  float kept, dropped;
};
inline constexpr DropoutWeights kDropoutKinds{0x1p-14F, 0x1p15F};
static_assert(kNegativeInfinityWeight * kDropoutKinds.dropped / kDropoutKinds.kept >= kNanWeight);

struct Fp16 : attention::Fp16 {
  static constexpr ElementType kType = ElementType::f16;
  // P overflows if a later score exceeds the reference maximum by kHeadroom + 16 (log2).
  static constexpr float kHeadroom = 5;
  static constexpr uint32_t kNegativeWeightBits = 0x0400, kNanWeightBits = 0x7800;
};

struct Bf16 : attention::Bf16 {
  static constexpr ElementType kType = ElementType::bf16;
  static constexpr float kHeadroom = 0;
  static constexpr uint32_t kNegativeWeightBits = 0x3880, kNanWeightBits = 0x4700;
};

// Q, K and V stored in fp8; fp16 from shared memory on, which is exact (fp8_tiles.cuh).
struct Fp8 : Fp16 {};

// fp32 has multiplications of its own: fp32_math.cuh.
struct Fp32 {
  static constexpr ElementType kType = ElementType::f32;
  static constexpr float kHeadroom = 0;
  static constexpr uint32_t kInfinity = 0x7f800000, kOne = 0x3f800000,
                            kNegativeWeightBits = 0x38800000, kNanWeightBits = 0x47000000;
};

template <class Element>
inline constexpr bool kIsFp32 = std::is_same_v<Element, Fp32>;
template <class Element>
inline constexpr bool kIsFp8 = std::is_same_v<Element, Fp8>;

}  // namespace flashcore::cuda::forward_sm80::throughput
