// Transposes an accumulator's columns, two per lane, to eight neighbouring columns per lane.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm90::latency {

// Word i of lane q of each quad becomes word q of lane i.
__device__ __forceinline__ void transpose_quads(uint32_t (&w)[4], int lane) {
  const bool odd = (lane & 1) != 0, high = (lane & 2) != 0;
  uint32_t a = __shfl_xor_sync(0xffffffffU, odd ? w[0] : w[1], 1);
  uint32_t b = __shfl_xor_sync(0xffffffffU, odd ? w[2] : w[3], 1);
  (odd ? w[0] : w[1]) = a;
  (odd ? w[2] : w[3]) = b;
  a = __shfl_xor_sync(0xffffffffU, high ? w[0] : w[2], 2);
  b = __shfl_xor_sync(0xffffffffU, high ? w[1] : w[3], 2);
  (high ? w[0] : w[2]) = a;
  (high ? w[1] : w[3]) = b;
}

}  // namespace flashcore::cuda::forward_sm90::latency
