// Exactness when a tile holds NaN or infinities.
//
// A product multiplies every weight of a tile by every row, and 0 * NaN is NaN: a NaN
// would reach rows whose pair with it is removed. Therefore a block whose sums are not
// finite recomputes them in two passes, both through the ordinary loop, and rewrites the
// tiles of the other side between the products that make scores and those that make sums:
//
//   values   NaN and infinities become 0: sums are right except for these values
//   kinds    they become 1, everything else 0, and the weights of all remaining pairs 1: a sum that
//            is not 0 means that the row has such a value in this column
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/element.cuh"

namespace flashcore::cuda::backward_sm80::general {

enum class Pass { plain, values, kinds };

template <class Element>
__device__ __forceinline__ uint32_t guarded(uint32_t bits, Pass pass) {
  const uint32_t magnitude = bits & (kIsFp32<Element> ? 0x7fffffffU : 0x7fffU);
  if (magnitude < Element::kInfinity) return pass == Pass::values ? bits : 0;
  return pass == Pass::values ? 0 : Element::kOne;
}

// Rewrites this thread's share of a tile. Barriers must pass before and after.
template <class Element>
__device__ __forceinline__ void guard_tile(unsigned char* tile, int bytes, Pass pass, int thread,
                                           int threads) {
#pragma unroll 1
  for (int i = thread; i < bytes / 4; i += threads) {
    uint32_t& word = reinterpret_cast<uint32_t*>(tile)[i];
    if constexpr (kIsFp32<Element>) {
      word = guarded<Element>(word, pass);
    } else {
      word = guarded<Element>(word & 0xffffU, pass) | guarded<Element>(word >> 16, pass) << 16;
    }
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
