// One warp's part of a work unit: 8 or 16 query rows, every eighth KV tile.
//
//   tile n   : | wait | S^T = K Q^T | scale, softcap, ALiBi, mask | softmax, O *= r | O^T += V^T P^T |
//   tile n+s :                                                           load into the stage -->
//
// Keys and output columns are the 16 rows of a product, and rows of Q its 8
// columns: lane l has rows 2 (l % 4) and + 1 of 8, and keys (or columns) l / 4
// and l / 4 + 8. P^T becomes an operand by transposing 8x8 matrices in registers.
//
// Scores are in natural units, and exponents are differences, e^(score - reference): right for
// scores of any size. The reference is a score of the row that no later one has exceeded by more
// than kHeadroom, so it is raised rarely. Only tiles that some row does not see entirely are masked.
//
// fp8 keys and values remain fp8 in shared memory, and become fp16 just before a
// product: one instruction converts two of them, where bf16 would take five. Rows of Q
// in bf16 therefore also become fp16, times a power of two that brings a row's largest
// number below 2^15: only values below 2^-38 of it are lost. A lane reads four
// neighbouring bytes of a row of K, so step s of the product takes dimensions 16 s + 4 t .. + 3 instead
// of 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: Q has the same order. A lane reads neighbouring columns of two
// keys of V, so the even columns of 16 are the upper 8 rows of a product, and the odd ones the lower.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda/attention/decode/element.cuh"
#include "cuda/attention/decode/tree.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/attention/units.hpp"
#include "cuda/decode_sm90/stream_kv/ring.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::kLog2E, attention::kNoKey;
using attention::decode::kExponents, attention::decode::even_bytes, attention::decode::odd_bytes,
    attention::decode::of_fp8x2;

inline constexpr float kHeadroom = 5.5F;  // e^5.5 = 245: 16 bits of a probability hold it

// The column of O of a lane's element e of product i, counted in a tile of rows.
template <Config kConfig>
__device__ __forceinline__ int output_column(int i, int e, int lane) {
  if constexpr (kConfig.kv_bytes == 2) return 16 * i + lane / 4 + 8 * (e / 2);
  return 16 * i + 2 * (lane / 4) + e / 2;
}
__device__ __forceinline__ int row_in_tile(int tile, int e, int lane) {
  return kProductRows * tile + 2 * (lane % 4) + e % 2;
}

// Rounds two probabilities, each as one term that is never 0 for a visible key: an infinite value stays infinite.
template <class Element>
__device__ __forceinline__ float not_zero(float x) {
  return x == 0 ? 0 : copysignf(fmaxf(fabsf(x), Element::kLeast), x);
}
template <class Element>
__device__ __forceinline__ uint32_t term_of(float low, float high) {
  return Element::pack(not_zero<Element>(low), not_zero<Element>(high));
}

// The maximum over the lanes that hold a row.
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, step));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

// A warp's accumulators: a lane's two rows in each tile of rows.
template <Config kConfig>
struct Accumulators {
  float o[kConfig.head_dim / 16][kConfig.row_tiles][4];
  float reference[kConfig.row_tiles][2], sum[kConfig.row_tiles][2];
  float rounded[kConfig.row_tiles][2];  // sum of rounded probabilities: see finish()
  float unit;                           // of o: a power of two, from the scales of V
};

template <Config kConfig>
struct Query {
  uint32_t pairs[kConfig.head_dim / 16][kConfig.row_tiles][2];
  float unit[kConfig.row_tiles][2];  // of a lane's two rows of scores, if rows have been scaled
};

template <Config kConfig, class Element>
struct Warp {
  using Tile = KvTile<kConfig>;
  static constexpr bool kFp8 = kConfig.kv_bytes == 1;
  static constexpr bool kReadsTrees = !kFp8;  // not enough registers for both
  using Product = std::conditional_t<kFp8, attention::decode::Fp16, Element>;
  static constexpr bool kScalesQuery = kFp8 && !std::is_same_v<Product, Element>;
  // Terms per probability. One fp16 term is finer than Q in bf16 needs; one
  // bf16 term suffices if its rounding does not change the sum of weights.
  static constexpr int kTerms = std::is_same_v<Element, attention::decode::Bf16> ? 1 : 2;
  static constexpr bool kSumsRounded = kTerms == 1 && !kScalesQuery;
  static constexpr int kKeys = 16;  // processed at once
  static constexpr int kTiles = kConfig.row_tiles, kProducts = kConfig.head_dim / 16;
  static constexpr int kKeysBytes = kKeys * Tile::kPanelRowBytes;  // per panel
  static constexpr int kLanePairs = kFp8 ? 2 : 1;                  // of Q, adjacent
  using Scores = float[kTiles][4];

  const Params& p;
  const Unit& unit;
  const Stages<kConfig>& stages;
  int lane;

  // Loads the fragments of Q, for rows that exist.
  __device__ void load_query(Query<kConfig>& q) const {
    const auto* const data = static_cast<const uint16_t*>(p.q.data);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = unit.first_row + min(kProductRows * tile + lane / 4, unit.rows - 1);
      const auto query = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row)));
      const int head = unit.kv_head * p.group + row - query * p.group;
      const uint16_t* const from = data + (unit.batch * p.q.batch + head * p.q.head +
                                           int64_t{unit.at.entry.q_row + query} * p.q.row);
      load_pairs(q.pairs, tile, from);
      if constexpr (kScalesQuery) scale_query(q, tile);
    }
  }

  __device__ void begin(Accumulators<kConfig>& w) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        w.reference[tile][slot] = kNoKey;
        w.sum[tile][slot] = w.rounded[tile][slot] = 0;
      }
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) w.o[i][tile][e] = 0;
      }
    }
    w.unit = kFp8 && p.v_scale.data != nullptr ? std::numeric_limits<float>::min() : 1.0F;
  }

  // Processes the tile in a stage; `key`: its first key.
  __device__ void process_tile(Accumulators<kConfig>& w, const Query<kConfig>& q, int stage,
                               int key) const {
#pragma unroll 1
    for (int i = 0; i < kConfig.tile_keys / kKeys; ++i) {
      const Keys keys{stages.k_tile(stage) + i * kKeysBytes, stages.v_tile(stage) + i * kKeysBytes,
                      stages.k_scales(stage) + i * kKeys, stages.v_scales(stage) + i * kKeys,
                      key + i * kKeys};
      process_keys(w, q, keys);
    }
  }

 private:
  using Pairs = uint32_t[kProducts][kTiles][2];

  __device__ void load_pairs(Pairs& q, int tile, const uint16_t* row) const {
    // Whole rows in pairs take few instructions, which matters while the instruction cache is cold.
    if (p.pairs && p.head_dim_qk == kConfig.head_dim) [[likely]] {
      const auto* const pairs = reinterpret_cast<const uint32_t*>(row) + kLanePairs * (lane % 4);
#pragma unroll
      for (int step = 0; step < kProducts; ++step) {
        q[step][tile][0] = __ldg(pairs + 8 * step);
        q[step][tile][1] = __ldg(pairs + 8 * step + (kFp8 ? 1 : 4));
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < kProducts; ++step) {
      const int first = 16 * step + 2 * kLanePairs * (lane % 4);
      q[step][tile][0] = attention::decode::query_pair(p, row, first);
      q[step][tile][1] = attention::decode::query_pair(p, row, first + (kFp8 ? 2 : 8));
    }
  }

  // Converts bf16 to fp16, with a scale per row.
  __device__ void scale_query(Query<kConfig>& q, int tile) const {
    uint32_t largest = 0;  // of the bits of finite numbers
#pragma unroll
    for (int i = 0; i < 2 * kProducts; ++i) {
      const uint32_t pair = q.pairs[i / 2][tile][i % 2];
      const uint32_t wrong = __vcmpeq2(pair & kExponents<Element>, kExponents<Element>);
      const uint32_t size = pair & 0x7fff7fffU & ~wrong;
      largest = max(largest, max(size & 0xffffU, size >> 16));
    }
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
    // Exponents are biased as in fp32: the factor's brings the largest number's to 14.
    const uint32_t exponent = min(127 + 14 + 127 - (largest >> 7), 253U);
    const float factor = __uint_as_float(exponent << 23);
#pragma unroll
    for (int i = 0; i < 2 * kProducts; ++i) {
      uint32_t& pair = q.pairs[i / 2][tile][i % 2];
      pair = Product::pack(Element::to_float(static_cast<uint16_t>(pair)) * factor,
                           Element::to_float(static_cast<uint16_t>(pair >> 16)) * factor);
    }
    const float unit = __uint_as_float((254 - exponent) << 23);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      q.unit[tile][slot] = __shfl_sync(0xffffffffU, unit, 4 * row_in_tile(0, slot, lane));
    }
  }

  // 16 keys of a tile: their memory and the first key.
  struct Keys {
    const unsigned char *k, *v;
    const float *k_scales, *v_scales;
    int first;
  };

  __device__ void process_keys(Accumulators<kConfig>& w, const Query<kConfig>& q,
                               const Keys& keys) const {
    Scores s;
    products(s, q, keys.k);
    scale_scores(s, q, keys);
    if (is_masked(keys.first)) [[unlikely]] {
      mask(s, keys.first);
      softmax(w, s);
      if constexpr (kFp8) scale_values(w, s, keys.v_scales);
      const bool clean = outputs<true>(w, s, keys.v);
      if (!clean) [[unlikely]]
        add_not_finite(w, keys);
    } else {
      softmax(w, s);
      if constexpr (kFp8) scale_values(w, s, keys.v_scales);
      outputs<false>(w, s, keys.v);
    }
  }

  __device__ int row_of(int tile, int slot) const {
    return unit.first_row + min(row_in_tile(tile, slot, lane), unit.rows - 1);
  }

  // Computed on demand: few tiles need it.
  __device__ int query_of(int row) const {
    return static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row)));
  }

  // Returns the keys that a row sees, counted from `key`.
  __device__ attention::ColumnRange seen_of(int tile, int slot, int key) const {
    attention::ColumnRange seen =
        attention::visible_columns(unit.limits, query_of(row_of(tile, slot)), key);
    seen.begin = max(seen.begin, unit.begin - key);
    seen.end = min(seen.end, unit.end - key);
    return seen;
  }

  // Bit c: whether a row's tree mask, if there is one, allows key + c.
  __device__ uint32_t allowed_of(int tile, int slot, int key) const {
    if (!kReadsTrees || !p.tree.present) return ~uint32_t{0};
    return attention::decode::tree_bits(p.tree, unit.at.entry, unit.batch,
                                        query_of(row_of(tile, slot)), key);
  }
  __device__ static bool sees_column(const attention::ColumnRange& seen, uint32_t allowed,
                                     int column) {
    return column >= seen.begin && column < seen.end && (allowed >> column & 1) != 0;
  }

  // Returns the ALiBi slope of a row's head.
  __device__ float slope_of(int row, int query) const {
    const int head = unit.kv_head * p.group + row - query * p.group;
    const attention::HeadVector& slopes = p.alibi_slopes;
    return __ldg(slopes.data + (unit.batch * slopes.batch + head * slopes.head));
  }

  // Returns whether some row does not see all keys of the tile.
  __device__ bool is_masked(int key) const {
    return key < unit.open_begin || key + kKeys > unit.open_end;
  }

  __device__ void mask(Scores& s, int key) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const attention::ColumnRange seen = seen_of(tile, slot, key);
        const uint32_t allowed = allowed_of(tile, slot, key);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = 8 * half + lane / 4;
          if (!sees_column(seen, allowed, column)) s[tile][2 * half + slot] = kNoKey;
        }
      }
    }
  }

  // Returns the row of 8 that a lane addresses in four 8x8 matrices: keys first, or chunks first.
  __device__ uint32_t keys_first(const unsigned char* tile) const {
    return ptx::shared_address(tile) +
           Tile::chunk_offset((lane & 7) + (((lane >> 3) & 1) << 3), lane >> 4);
  }
  __device__ uint32_t chunks_first(const unsigned char* tile) const {
    return ptx::shared_address(tile) +
           Tile::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
  }

  __device__ void products(Scores& s, const Query<kConfig>& q, const unsigned char* tile) const {
    const uint32_t k = keys_first(tile);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) s[i / 4][i % 4] = 0;
#pragma unroll
    for (int pair = 0; pair < Tile::kRowChunks / 2; ++pair) {
      uint32_t r[4];
      ptx::ldmatrix_x4(r, Tile::template advance<2>(k, pair));
      if constexpr (kFp8) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // the pair's chunks, one step each
          const uint32_t a[4] = {of_fp8x2<Product>(r[2 * i] & 0xffffU, kConfig.e5m2),
                                 of_fp8x2<Product>(r[2 * i + 1] & 0xffffU, kConfig.e5m2),
                                 of_fp8x2<Product>(r[2 * i] >> 16, kConfig.e5m2),
                                 of_fp8x2<Product>(r[2 * i + 1] >> 16, kConfig.e5m2)};
          multiply_query(s, a, q.pairs[2 * pair + i]);
        }
      } else {
        multiply_query(s, r, q.pairs[pair]);
      }
    }
  }

  __device__ static void multiply_query(Scores& s, const uint32_t (&a)[4],
                                        const uint32_t (&q)[kTiles][2]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      Product::multiply(s[tile], a, q[tile][0], q[tile][1]);
    }
  }

  // Turns products into scores in natural units.
  __device__ void scale_scores(Scores& s, const Query<kConfig>& q, const Keys& keys) const {
    if constexpr (kScalesQuery) {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) s[i / 4][i % 4] *= q.unit[i / 4][i % 2];
    }
    if constexpr (kFp8) {
      if (p.k_scale.data != nullptr) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float scale = keys.k_scales[8 * half + lane / 4];
#pragma unroll
          for (int i = 0; i < 2 * kTiles; ++i) s[i / 2][2 * half + i % 2] *= scale;
        }
      }
    }
    if (p.softcap.cap_log2 > 0) [[unlikely]] {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) {
        s[i / 4][i % 4] = attention::capped_log2(s[i / 4][i % 4], p.softcap);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) s[i / 4][i % 4] *= p.softmax_scale;
    }
    if (p.alibi_slopes.data != nullptr) [[unlikely]] {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          const int row = row_of(tile, slot), query = query_of(row);
          const float slope = slope_of(row, query);
          // Exact up to 2^24; beyond, to fp32's last bits.
          const auto distance = static_cast<float>(query + unit.at.entry.offset - keys.first);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const auto column = static_cast<float>(8 * half + lane / 4);
            float& x = s[tile][2 * half + slot];
            x = fmaf(-slope, fabsf(distance - column), x);
          }
        }
      }
    }
  }

  // s = e^(s - reference); rescales sums and outputs when the reference is raised.
  __device__ void softmax(Accumulators<kConfig>& w, Scores& s) const {
    float most[kTiles][2];
    bool passed = false;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        most[tile][slot] = fmaxf(s[tile][slot], s[tile][2 + slot]);
        passed = passed || most[tile][slot] > w.reference[tile][slot] + kHeadroom;
      }
    }
    if (__any_sync(0xffffffffU, passed)) [[unlikely]] {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          const float before = w.reference[tile][slot];
          const float after = fmaxf(before, row_max(most[tile][slot]));
          const float by = ptx::exp2_approx((before - finite(after)) * kLog2E);
          w.reference[tile][slot] = after;
          w.sum[tile][slot] *= by;
          w.rounded[tile][slot] *= by;
#pragma unroll
          for (int i = 0; i < kProducts; ++i) {
            w.o[i][tile][slot] *= by;
            w.o[i][tile][2 + slot] *= by;
          }
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const float reference = finite(w.reference[tile][slot]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& x = s[tile][2 * half + slot];
          x = ptx::exp2_approx((x - reference) * kLog2E);
          w.sum[tile][slot] += x;
        }
      }
    }
  }

  // The reference of exponents: 0 while a row has seen no key, as -inf - -inf would be NaN.
  __device__ static float finite(float reference) { return reference == kNoKey ? 0 : reference; }

  // Multiplies probabilities by the scales of values, in units that fit 16 bits.
  __device__ void scale_values(Accumulators<kConfig>& w, Scores& s, const float* scales) const {
    if (p.v_scale.data == nullptr) return;
    float largest = fabsf(scales[lane % kKeys]);
    if (__any_sync(0xffffffffU, largest >= 2 * w.unit)) {
#pragma unroll
      for (int step = kKeys / 2; step > 0; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
      }
      // The largest power of two below it, whose reciprocal is exact.
      const uint32_t exponent = min(__float_as_uint(largest) & 0x7f800000U, 0x7e000000U);
      const float raised = fmaxf(__uint_as_float(exponent), w.unit);
      const float by = w.unit * reciprocal_of(raised);
#pragma unroll
      for (int i = 0; i < 4 * kTiles * kProducts; ++i) {
        w.o[i / (4 * kTiles)][i / 4 % kTiles][i % 4] *= by;
      }
      w.unit = raised;
    }
    const float inverse = reciprocal_of(w.unit);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = scales[8 * half + lane / 4] * inverse;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        float& x = s[i / 2][2 * half + i % 2];
        x = x == 0 ? 0 : x * scale;
      }
    }
  }

  // Returns the reciprocal of a power of two from 2^-126 to 2^125.
  __device__ static float reciprocal_of(float power) {
    return __uint_as_float(0x7f000000U - __float_as_uint(power));
  }

  // outputs.cuh
  template <bool kGuarded>
  __device__ bool outputs(Accumulators<kConfig>& w, const Scores& s,
                          const unsigned char* tile) const;
  __device__ void add_not_finite(Accumulators<kConfig>& w, const Keys& keys) const;
  __device__ float value(const unsigned char* tile, int key, int column) const;
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv

#include "cuda/decode_sm90/stream_kv/outputs.cuh"
