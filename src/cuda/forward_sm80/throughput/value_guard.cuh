// Exactness when V holds NaN or infinities.
//
// A product multiplies every probability of a tile by every value, and 0 * NaN is
// NaN: a NaN would reach rows whose mask removes its key. Therefore a block whose
// outputs are not finite is recomputed in two passes, both through the ordinary loop:
//
//   values   NaN and infinities of V become 0: outputs are finite, and right except for these values
//   kinds    V becomes 0, or a weight for each kind of non-finite value; probabilities become 1
//            if the pair counts and 0 if it is removed: a sum that is not 0 means that the row
//            attends to such a value in this column, and tells its kind. Dropout removes no pair: 0
//            times an infinity is NaN
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

enum class GuardPass { values, kinds };

template <class Element>
__device__ inline uint32_t guarded(uint32_t bits, GuardPass pass) {
  const uint32_t magnitude = bits & (kIsFp32<Element> ? 0x7fffffffU : 0x7fffU);
  if (pass == GuardPass::values) return magnitude < Element::kInfinity ? bits : 0;
  if (magnitude < Element::kInfinity) return 0;
  if (magnitude > Element::kInfinity) return Element::kNanWeightBits;
  return bits == magnitude ? Element::kOne : Element::kNegativeWeightBits;
}

// Rewrites this thread's share of a V tile; returns whether it held
// a value that is not finite. Barriers must pass before and after.
template <class Element, int kTileBytes>
__device__ inline bool guard_values(unsigned char* tile, GuardPass pass, int thread, int threads) {
  bool found = false;
#pragma unroll 1
  for (int i = thread; i < kTileBytes / 4; i += threads) {
    uint32_t& word = reinterpret_cast<uint32_t*>(tile)[i];
    if constexpr (kIsFp32<Element>) {
      found = found || (word & 0x7fffffffU) >= Element::kInfinity;
      word = guarded<Element>(word, pass);
    } else {
      const uint32_t low = word & 0xffffU, high = word >> 16;
      found =
          found || (low & 0x7fffU) >= Element::kInfinity || (high & 0x7fffU) >= Element::kInfinity;
      word = guarded<Element>(low, pass) | guarded<Element>(high, pass) << 16;
    }
  }
  return found;
}

// Returns the output whose kinds added up to `sum`, which is not 0.
__device__ inline float nonfinite_of(float sum) {
  const float infinity = __int_as_float(0x7f800000);
  if (sum >= kNanWeight) return __int_as_float(0x7fffffff);
  const float positive = floorf(sum);
  if (positive == sum) return infinity;
  return positive == 0 ? -infinity : __int_as_float(0x7fffffff);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
