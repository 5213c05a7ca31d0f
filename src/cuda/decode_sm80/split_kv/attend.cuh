// One warp's part of a work unit: 16 rows against the tiles of its ring, which
// are every `rings`-th tile of the unit, with all columns of O or only its own.
//
//   tile n   : | wait | S = Q K^T | scale, softcap, bias, ALiBi, mask | softmax, O *= r | O += P V |
//   tile n+s :                                                              load into the stage -->
//
// Scores are in natural units, and exponents are differences, e^(score - largest): right for scores
// of any size. Only tiles that some row does not see entirely are masked, and tree masks apply only
// to tiles with keys of the tree. Separate instances read bias and masks of pairs, for every tile.
//
// fp8 keys and values remain fp8 in shared memory. A lane reads four neighbouring
// bytes of a row of K, so step s of the product takes dimensions 16 s + 4 t .. +
// 3 instead of 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: Q's fragments have the same
// order. A lane reads neighbouring dimensions of two keys of V: one product for
// the even ones and one for the odd ones; output_column() gives their columns.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda/attention/decode/element.cuh"
#include "cuda/attention/decode/tree.cuh"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/units.hpp"
#include "cuda/decode_sm80/split_kv/keys.cuh"
#include "cuda/decode_sm80/split_kv/pairs.cuh"
#include "cuda/decode_sm80/split_kv/tree.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/pin.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::kLog2E, attention::kNoKey;
using attention::decode::kExponents, attention::decode::even_bytes, attention::decode::odd_bytes,
    attention::decode::of_fp8x2;

// Returns the column of O of element e (0 or 1) of a row of a warp's product n.
template <Config kConfig>
__device__ __forceinline__ int output_column(int n, int e, int lane) {
  int first = 0;
  if constexpr (kConfig.column_warps > 1) first = this_member<kConfig>() * kConfig.warp_columns();
  if constexpr (kConfig.kv_bytes == 2) return first + 8 * n + 2 * (lane % 4) + e;
  return first + 16 * (n / 2) + 4 * (lane % 4) + 2 * e + n % 2;
}

// A warp's accumulators: a lane's two rows (lane / 4 and + 8).
template <Config kConfig>
struct Accumulators {
  float o[kConfig.warp_columns() / 8][4];
  float largest[2], sum[2];
  float unit;  // of o: a power of two, from the scales of V
};

// The fragments of Q: in registers, or in shared memory, 16 bytes per lane and step.
template <Config kConfig>
struct Query {
  static constexpr int kSteps = kConfig.head_dim_qk / 16;
  const uint4* shared;
  uint32_t held[kConfig.q_in_registers ? kSteps : 1][4];

  __device__ __forceinline__ void hold(int lane) {
    if constexpr (kConfig.q_in_registers) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) read(held[step], step, lane);
    }
  }
  __device__ __forceinline__ void get(uint32_t (&a)[4], int step, int lane) const {
    if constexpr (kConfig.q_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held[step][i];
    } else {
      read(a, step, lane);
    }
  }

 private:
  __device__ __forceinline__ void read(uint32_t (&a)[4], int step, int lane) const {
    const uint4 word = shared[32 * step + lane];
    a[0] = word.x, a[1] = word.y, a[2] = word.z, a[3] = word.w;
  }
};

template <Config kConfig, class Element>
struct Warp {
  using OfK = KTile<kConfig>;
  using OfV = VTile<kConfig>;
  static constexpr bool kFp8 = kConfig.kv_bytes == 1;
  static constexpr int kKeys = kConfig.tile_keys, kProducts = kKeys / 8;
  static constexpr int kOutProducts = kConfig.warp_columns() / 8;
  static constexpr int kBlockBytes = 16 * OfK::kPanelRowBytes;  // of 16 keys, per panel
  static_assert(OfK::kPanelRowBytes == OfV::kPanelRowBytes);
  using Scores = float[kProducts][4];
  using Pairs = std::conditional_t<kConfig.reads_pairs, LanePairs<kProducts>, NoPairs>;

  const ParamsOf<kConfig>& p;
  const Unit& unit;
  const Ring<kConfig>& ring;
  int lane;

  __device__ void begin(Accumulators<kConfig>& w) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      w.largest[slot] = kNoKey;
      w.sum[slot] = 0;
    }
    w.unit = kFp8 && p.v_scale.data != nullptr ? std::numeric_limits<float>::min() : 1.0F;
#pragma unroll
    for (int i = 0; i < 4 * kOutProducts; ++i) w.o[i / 4][i % 4] = 0;
  }

  // Reads bias and mask of the tile whose first key is `key`.
  __device__ void read_pairs(Pairs& pairs, int key) const {
    if constexpr (kConfig.reads_pairs) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int query = query_of(slot);
        const int head = unit.kv_head * p.group + row_of(slot) - query * p.group;
        const auto row = [&](const attention::PairMatrix& m) {
          return unit.batch * m.batch + head * m.head + query * m.query;
        };
        pairs.read(p, slot, row(p.bias), row(p.mask), key + 2 * (lane % 4), unit.end - 1);
      }
    }
  }

  // Processes the tile in a stage; `key`: its first key.
  __device__ void process_tile(Accumulators<kConfig>& w, const Query<kConfig>& q,
                               const Pairs& pairs, int stage, int key) const {
    Scores s;
    products(s, q, ring.k_tile(stage));
    scale_scores(s, pairs, stage, key);
    if (is_masked(pairs, key)) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const attention::ColumnRange seen = seen_of(slot, key);
        const int column = 2 * (lane % 4);
        attention::mask_row(s, slot, {seen.begin - column, seen.end - column});
        if constexpr (kConfig.reads_trees) mask_by_bits(s, slot, allowed_of(slot, key) >> column);
        if constexpr (kConfig.reads_pairs) mask_by_bits(s, slot, pairs.lane_bits(slot));
      }
      softmax(w, s);
      if constexpr (kFp8) scale_values(w, s, stage);
      const bool clean = outputs<true>(w, s, ring.v_tile(stage));
      if (!clean) add_not_finite(w, pairs, stage, key);
    } else {
      softmax(w, s);
      if constexpr (kFp8) scale_values(w, s, stage);
      outputs<false>(w, s, ring.v_tile(stage));
    }
  }

 private:
  __device__ int row_of(int slot) const {
    return unit.first_row + min(lane / 4 + 8 * slot, unit.rows - 1);
  }

  // Computed on demand: few tiles need it.
  __device__ int query_of(int slot) const {
    return static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row_of(slot))));
  }

  // Returns the columns that a row sees in the tile whose first key is `key`.
  __device__ attention::ColumnRange seen_of(int slot, int key) const {
    attention::ColumnRange seen = attention::visible_columns(unit.limits, query_of(slot), key);
    seen.end = min(seen.end, unit.end - key);
    return seen;
  }

  // Returns the allowed columns of a row, with bias and mask of pairs.
  __device__ uint32_t allowed_of(int slot, const Pairs& pairs, int key) const {
    if constexpr (kConfig.reads_pairs) return allowed_of(slot, key) & pairs.row_bits(slot, lane);
    return allowed_of(slot, key);
  }

  // Bit c: whether a row's tree mask, if there is one, allows column c of the tile.
  __device__ uint32_t allowed_of(int slot, int key) const {
    if constexpr (kConfig.reads_trees) {
      if (p.tree.present) {
        return attention::decode::tree_bits(p.tree, unit.at.entry, unit.batch, query_of(slot), key);
      }
    }
    return ~uint32_t{0};
  }

  // Returns the ALiBi slope of a row's head.
  __device__ float slope_of(int slot) const {
    const int head = unit.kv_head * p.group + row_of(slot) - query_of(slot) * p.group;
    const attention::HeadVector& slopes = p.alibi_slopes;
    return __ldg(slopes.data + (unit.batch * slopes.batch + head * slopes.head));
  }

  // Returns whether some row does not see all keys of the tile.
  __device__ bool is_masked(const Pairs& pairs, int key) const {
    if constexpr (kConfig.reads_pairs) {
      if (pairs.removes_any()) return true;
    }
    if constexpr (kConfig.reads_trees) {
      if (p.tree.present && key + kKeys > unit.at.entry.offset) return true;
    }
    const int first = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(unit.first_row)));
    const int last =
        static_cast<int>(p.by_group.divide(static_cast<uint32_t>(unit.first_row + unit.rows - 1)));
    return key + kKeys > unit.end || key < last + unit.limits.low ||
           key + kKeys - 1 > first + unit.limits.high;
  }

  __device__ void products(Scores& s, const Query<kConfig>& q, const unsigned char* tile) const {
    const uint32_t k = ptx::shared_address(tile) +
                       OfK::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
#pragma unroll
    for (int i = 0; i < 4 * kProducts; ++i) s[i / 4][i % 4] = 0;
#pragma unroll
    for (int pair = 0; pair < OfK::kRowChunks / 2; ++pair) {
      const uint32_t column = OfK::template advance<2>(k, pair);
      uint32_t a[kFp8 ? 2 : 1][4];
#pragma unroll
      for (int i = 0; i < (kFp8 ? 2 : 1); ++i) q.get(a[i], kFp8 ? 2 * pair + i : pair, lane);
#pragma unroll
      for (int block = 0; block < kProducts / 2; ++block) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, column + block * kBlockBytes);
        if constexpr (kFp8) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            Element::multiply(s[2 * block + i / 2], a[i % 2],
                              of_fp8x2<Element>(b[i] & 0xffffU, p.k_e5m2),
                              of_fp8x2<Element>(b[i] >> 16, p.k_e5m2));
          }
        } else {
          Element::multiply(s[2 * block], a[0], b[0], b[1]);
          Element::multiply(s[2 * block + 1], a[0], b[2], b[3]);
        }
      }
    }
  }

  // Turns products into scores in natural units.
  __device__ void scale_scores(Scores& s, const Pairs& pairs, int stage, int key) const {
    if constexpr (kFp8) {
      if (p.k_scale.data != nullptr) {
        const float* const scales = ring.k_scales(stage) + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < kProducts; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) s[n][e] *= scales[8 * n + e % 2];
        }
      }
    }
    if (p.softcap.cap_log2 > 0) {
#pragma unroll
      for (int i = 0; i < 4 * kProducts; ++i) {
        s[i / 4][i % 4] = attention::capped_log2(s[i / 4][i % 4], p.softcap);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kProducts; ++i) s[i / 4][i % 4] *= p.softmax_scale;
    }
    if constexpr (kConfig.reads_pairs) {
      if (p.bias.data != nullptr) {
#pragma unroll
        for (int i = 0; i < 4 * kProducts; ++i) {
          s[i / 4][i % 4] += pairs.bias[i % 4 / 2][i / 4][i % 2];
        }
      }
    }
    if (p.alibi_slopes.data != nullptr) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const float slope = slope_of(slot);
        // Exact up to 2^24; beyond, to fp32's last bits.
        const auto distance = static_cast<float>(query_of(slot) + unit.at.entry.offset - key);
#pragma unroll
        for (int n = 0; n < kProducts; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const auto column = static_cast<float>(8 * n + 2 * (lane % 4) + e);
            s[n][2 * slot + e] = fmaf(-slope, fabsf(distance - column), s[n][2 * slot + e]);
          }
        }
      }
    }
  }

  // s = e^(s - largest); rescales sums and outputs when the largest score grows.
  __device__ void softmax(Accumulators<kConfig>& w, Scores& s) const {
    float rescale[2], reference[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float before = w.largest[slot];
      w.largest[slot] = fmaxf(before, attention::quad_max(attention::lane_max(s, slot)));
      reference[slot] = attention::finite_reference(w.largest[slot]);
      rescale[slot] = ptx::exp2_approx((before - reference[slot]) * kLog2E);
    }
    // 1 if the largest score of no row has grown, NaN if it is infinite.
    if (__any_sync(0xffffffffU, rescale[0] != 1.0F || rescale[1] != 1.0F)) {
      attention::rescale_rows(w.o, rescale);
      w.sum[0] *= rescale[0];
      w.sum[1] *= rescale[1];
    }
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[n][e] = ptx::exp2_approx((s[n][e] - reference[e / 2]) * kLog2E);
        w.sum[e / 2] += s[n][e];
      }
    }
  }

  // Multiplies probabilities by the scales of values, in units that fit 16 bits.
  __device__ void scale_values(Accumulators<kConfig>& w, Scores& s, int stage) const {
    if (p.v_scale.data == nullptr) return;
    const float* const scales = ring.v_scales(stage);
    float largest = fabsf(scales[lane % kKeys]);
    if (__any_sync(0xffffffffU, largest >= 2 * w.unit)) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
      }
      // The largest power of two below it, whose reciprocal is exact.
      const uint32_t exponent = min(__float_as_uint(largest) & 0x7f800000U, 0x7e000000U);
      const float raised = fmaxf(__uint_as_float(exponent), w.unit);
      const float by = w.unit * reciprocal_of(raised);
      const float both[2] = {by, by};
      attention::rescale_rows(w.o, both);
      w.unit = raised;
    }
    const float inverse = reciprocal_of(w.unit);
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float scale = scales[8 * n + 2 * (lane % 4) + e % 2] * inverse;
        s[n][e] = s[n][e] == 0 ? 0 : s[n][e] * scale;
      }
    }
  }

  // Returns the reciprocal of a power of two from 2^-126 to 2^125.
  __device__ static float reciprocal_of(float power) {
    return __uint_as_float(0x7f000000U - __float_as_uint(power));
  }

  // O += P V. kGuarded: skips values that are not finite; returns false if there were any.
  template <bool kGuarded>
  __device__ bool outputs(Accumulators<kConfig>& w, const Scores& s,
                          const unsigned char* tile) const {
    constexpr int kWarpBytes = OfV::kBytes / kConfig.column_warps;  // whole panels
    const uint32_t v = ptx::shared_address(tile) +
                       static_cast<uint32_t>(this_member<kConfig>() * kWarpBytes) +
                       OfV::chunk_offset(lane & 15, lane >> 4);
    bool finite = true;
#pragma unroll
    for (int block = 0; block < kProducts / 2; ++block) {
      uint32_t a[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& pair = s[2 * block + i / 2];
        const attention::decode::Terms terms =
            attention::decode::terms_of<Element>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        a[i] = terms.first;
        rest[i] = terms.second;
      }
#pragma unroll
      for (int chunks = 0; chunks < OfV::kRowChunks / 2 / kConfig.column_warps; ++chunks) {
        uint32_t r[4];
        ptx::ldmatrix_x4_trans(r, OfV::template advance<2>(v, chunks) + block * kBlockBytes);
#pragma unroll
        for (int i = 0; i < (kFp8 ? 4 : 2); ++i) {
          uint32_t b0 = r[i / (kFp8 ? 2 : 1) * 2], b1 = r[i / (kFp8 ? 2 : 1) * 2 + 1];
          if constexpr (kFp8) {
            b0 = of_fp8x2<Element>(i % 2 == 0 ? even_bytes(b0) : odd_bytes(b0), v_is_e5m2());
            b1 = of_fp8x2<Element>(i % 2 == 0 ? even_bytes(b1) : odd_bytes(b1), v_is_e5m2());
          }
          if constexpr (kGuarded) {
            const uint32_t wrong0 = __vcmpeq2(b0 & kExponents<Element>, kExponents<Element>);
            const uint32_t wrong1 = __vcmpeq2(b1 & kExponents<Element>, kExponents<Element>);
            finite = finite && (wrong0 | wrong1) == 0;
            b0 &= ~wrong0;
            b1 &= ~wrong1;
          }
          float(&o)[4] = w.o[(kFp8 ? 4 : 2) * chunks + i];
          Element::multiply(o, a, b0, b1);
          Element::multiply(o, rest, b0, b1);
        }
      }
    }
    return !kGuarded || __all_sync(0xffffffffU, finite);
  }

  // Adds the values that outputs() skipped, for the rows that see
  // them: their weight is not 0, so its value does not matter.
  __device__ void add_not_finite(Accumulators<kConfig>& w, const Pairs& pairs, int stage,
                                 int first_key) const {
    const attention::ColumnRange seen[2] = {seen_of(0, first_key), seen_of(1, first_key)};
    const uint32_t allowed[2] = {allowed_of(0, pairs, first_key), allowed_of(1, pairs, first_key)};
#pragma unroll 1
    for (int key = 0; key < kKeys; ++key) {
      const int here =
          ptx::opaque(lane);  // otherwise addresses of all columns would be held, which is too much
      float sign = 1;
      if constexpr (kFp8) {
        if (p.v_scale.data != nullptr) sign = ring.v_scales(stage)[key];
      }
#pragma unroll
      for (int n = 0; n < kOutProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float x = value(ring.v_tile(stage), key, output_column<kConfig>(n, e, here)) * sign;
          if (x - x == 0) continue;
#pragma unroll
          for (int slot = 0; slot < 2; ++slot) {
            if constexpr (kConfig.reads_trees) {
              if ((allowed[slot] >> key & 1) == 0) continue;
            }
            if (key >= seen[slot].begin && key < seen[slot].end) w.o[n][2 * slot + e] += x;
          }
        }
      }
    }
  }

  // For long rows, V has K's type: there are no registers for two types.
  __device__ bool v_is_e5m2() const {
    return kConfig.head_dim_qk > kMostColumnsOfTwoTypes ? p.k_e5m2 : p.v_e5m2;
  }

  __device__ float value(const unsigned char* tile, int key, int column) const {
    const unsigned char* const at = tile + OfV::offset(key, column);
    if constexpr (kFp8) {
      return Element::to_float(static_cast<uint16_t>(of_fp8x2<Element>(*at, v_is_e5m2())));
    } else {
      return Element::to_float(*reinterpret_cast<const uint16_t*>(at));
    }
  }
};

}  // namespace flashcore::cuda::decode_sm80::split_kv
