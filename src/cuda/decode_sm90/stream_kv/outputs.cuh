// The second product of a warp (attend.cuh): probabilities times values, and the values that are not finite.
#pragma once

#include <cstdint>

#include "cuda/decode_sm90/stream_kv/attend.cuh"
#include "cuda/ptx/pin.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

// O^T += V^T P^T. kGuarded: skips values that are not finite; returns false if there were any.
template <Config kConfig, class Element>
template <bool kGuarded>
__device__ bool Warp<kConfig, Element>::outputs(Accumulators<kConfig>& w, const Scores& s,
                                                const unsigned char* tile) const {
  const uint32_t v = kFp8 ? keys_first(tile) : chunks_first(tile);
  bool finite_values = true;
  uint32_t b[kTiles][2], rest[kTiles][2] = {};
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const float low = s[i / 2][i % 2 * 2], high = s[i / 2][i % 2 * 2 + 1];
    if constexpr (kTerms == 1) {
      const uint32_t pair = term_of<Product>(low, high);
      if constexpr (kSumsRounded) {
        w.rounded[i / 2][0] += Product::to_float(static_cast<uint16_t>(pair));
        w.rounded[i / 2][1] += Product::to_float(static_cast<uint16_t>(pair >> 16));
      }
      b[i / 2][i % 2] = ptx::transpose_8x8(pair);
    } else {
      const attention::decode::Terms terms = attention::decode::terms_of<Product>(low, high);
      b[i / 2][i % 2] = ptx::transpose_8x8(terms.first);
      rest[i / 2][i % 2] = ptx::transpose_8x8(terms.second);
    }
  }
#pragma unroll
  for (int chunks = 0; chunks < Tile::kRowChunks / 2; ++chunks) {
    uint32_t r[4];
    ptx::ldmatrix_x4_trans(r, Tile::template advance<2>(v, chunks));
#pragma unroll
    for (int i = 0; i < (kFp8 ? 2 : 1); ++i) {
      uint32_t a[4] = {r[0], r[1], r[2], r[3]};
      if constexpr (kFp8) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          a[2 * j] = of_fp8x2<Product>(even_bytes(r[2 * i + j]), kConfig.e5m2);
          a[2 * j + 1] = of_fp8x2<Product>(odd_bytes(r[2 * i + j]), kConfig.e5m2);
        }
      }
      if constexpr (kGuarded) {
#pragma unroll
        for (uint32_t& pair : a) {
          const uint32_t wrong = __vcmpeq2(pair & kExponents<Product>, kExponents<Product>);
          finite_values = finite_values && wrong == 0;
          pair &= ~wrong;
        }
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float(&o)[4] = w.o[(kFp8 ? 2 : 1) * chunks + i][t];
        Product::multiply(o, a, b[t][0], b[t][1]);
        if constexpr (kTerms == 2) Product::multiply(o, a, rest[t][0], rest[t][1]);
      }
    }
  }
  return !kGuarded || __all_sync(0xffffffffU, finite_values);
}

// Adds the values that outputs() skipped, for the rows that see
// them: their weight is not 0, so its value does not matter.
template <Config kConfig, class Element>
__device__ void Warp<kConfig, Element>::add_not_finite(Accumulators<kConfig>& w,
                                                       const Keys& keys) const {
#pragma unroll 1
  for (int key = 0; key < kKeys; ++key) {
    const int here =
        ptx::opaque(lane);  // otherwise addresses of all columns would be held, which is too much
    float sign = 1;
    if constexpr (kFp8) {
      if (p.v_scale.data != nullptr) sign = keys.v_scales[key];
    }
    bool sees[kTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      sees[i / 2][i % 2] =
          sees_column(seen_of(i / 2, i % 2, keys.first), allowed_of(i / 2, i % 2, keys.first), key);
    }
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = output_column<kConfig>(i, 2 * half, here);
        const float x = value(keys.v, key, column) * sign;
        if (x - x == 0) continue;
#pragma unroll
        for (int t = 0; t < 2 * kTiles; ++t) {
          if (sees[t / 2][t % 2]) w.o[i][t / 2][2 * half + t % 2] += x;
        }
      }
    }
  }
}

template <Config kConfig, class Element>
__device__ float Warp<kConfig, Element>::value(const unsigned char* tile, int key,
                                               int column) const {
  const unsigned char* const at = tile + Tile::offset(key, column);
  if constexpr (kFp8) {
    return Product::to_float(static_cast<uint16_t>(of_fp8x2<Product>(*at, kConfig.e5m2)));
  } else {
    return Element::to_float(*reinterpret_cast<const uint16_t*>(at));
  }
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
