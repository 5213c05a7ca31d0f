// Keeps NaN and Inf values from rows that may not see them, in masked tiles.
//
// A Tensor Core product multiplies every probability of a tile by every value, and 0
// * NaN is NaN: a NaN in V would reach rows whose mask removes its key. Therefore:
//
//   1. a masked V tile is scanned in shared memory, and NaN and Inf in it become 0;
//   2. if that has happened in any tile of a block, each finished output adds the NaN and Inf
//      values that its row may see, read again from global memory. A probability is positive, so
//      p * NaN = NaN and p * Inf = Inf for any p: no probability is needed.
//
// Step 1 costs a vector load and a few integer operations per 16
// bytes of the tiles on the diagonal; step 2 almost never runs.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace flashcore::cuda::ladder {

// The operations that differ between element types.
struct HalfValues {
  using Element = __half;
  // Sets all bits of every element of `word` that is NaN or Inf.
  __device__ static uint32_t nonfinite(uint32_t word) {
    return __vcmpeq2(word & 0x7c007c00U, 0x7c007c00U);
  }
};

struct E4m3Values {
  using Element = __nv_fp8_e4m3;
  __device__ static uint32_t nonfinite(uint32_t word) {
    return __vcmpeq4(word & 0x7f7f7f7fU, 0x7f7f7f7fU);  // e4m3 has no Inf
  }
};

// Step 1 for this thread's share of the tile's 16-byte chunks (thread, thread + threads,
// ...): returns whether it held NaN or Inf. A barrier must pass before the tile is read.
template <class Values, int kTileBytes>
__device__ __forceinline__ bool zero_nonfinite(void* tile, int thread, int threads) {
  bool found = false;
#pragma unroll 1
  for (int i = thread; i < kTileBytes / 16; i += threads) {
    uint4 chunk = static_cast<const uint4*>(tile)[i];
    const uint4 bad = {Values::nonfinite(chunk.x), Values::nonfinite(chunk.y),
                       Values::nonfinite(chunk.z), Values::nonfinite(chunk.w)};
    if ((bad.x | bad.y | bad.z | bad.w) == 0) continue;
    found = true;
    chunk.x &= ~bad.x, chunk.y &= ~bad.y, chunk.z &= ~bad.z, chunk.w &= ~bad.w;
    static_cast<uint4*>(tile)[i] = chunk;
  }
  return found;
}

// Step 2 for eight neighbouring outputs of one row: adds the NaN and Inf values of the keys
// [begin, end) in the same columns. `values`: key 0's value of the first of these columns.
template <class Values>
__device__ __noinline__ uint4 add_visible_nonfinite(uint4 outputs, const void* values,
                                                    int64_t key_stride, int begin, int end) {
  auto* o = reinterpret_cast<__half*>(&outputs);
  for (int key = begin; key < end; ++key) {
    const auto* v = static_cast<const typename Values::Element*>(values) + key * key_stride;
    for (int i = 0; i < 8; ++i) {
      const float x = static_cast<float>(v[i]);
      if (!isfinite(x)) o[i] = __float2half(__half2float(o[i]) + x);
    }
  }
  return outputs;
}

}  // namespace flashcore::cuda::ladder
