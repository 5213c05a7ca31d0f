// Applies tree masks to a lane's scores.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

// Masks the columns of a lane's row of a slot that the bits do not allow. Bit 0: the lane's first column.
template <int kProducts>
__device__ __forceinline__ void mask_by_bits(float (&s)[kProducts][4], int slot, uint32_t bits) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if ((bits >> (8 * n + e) & 1) == 0) s[n][2 * slot + e] = attention::kNoKey;
    }
  }
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
