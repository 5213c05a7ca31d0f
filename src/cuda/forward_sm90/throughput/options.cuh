// Options that belong to pairs of a query and a key, on one warpgroup's tile of scores: bias, ALiBi, boolean masks.
//
//   bias    of 16 bits, with contiguous keys: tiles come by TMA, one slot per consumer, and ldmatrix gives each lane the
//           pairs at its own places
//   ALiBi   on one side of the diagonal: one fused multiply-add by the column; the row's part moves the reference
//   mask    bits (attention/mask_bits.hpp), 16 bytes per row of a tile
//
// Scores keep the units of the products, and natural terms are divided by the scale. Where that
// is not possible (OptionParams::scales_first), scores are in units of log2.
#pragma once

#include <cstdint>

#include "cuda/attention/element.cuh"
#include "cuda/forward_sm90/throughput/scores.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

template <class Bias>
__device__ __forceinline__ void add_pair(float& first, float& second, uint32_t pair, float factor) {
  const float2 bias = Bias::unpack(pair);
  first = fmaf(bias.x, factor, first);
  second = fmaf(bias.y, factor, second);
}

// Adds biases from the consumer's slot to the scores of the first kProducts products.
template <class S, class Bias, int kProducts>
__device__ __forceinline__ void add_copied_bias(Scores<S>& s, uint32_t slot, int warp, int lane,
                                                float factor) {
  using Tile = typename S::BiasTile;
  const uint32_t at = slot + Tile::chunk_offset(16 * warp + lane % 16, lane / 16);
#pragma unroll
  for (int n = 0; n < kProducts; n += 2) {
    uint32_t pair[4];
    ptx::ldmatrix_x4(pair, Tile::template advance<2>(at, n / 2));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&to)[4] = s[n + i / 2];
      add_pair<Bias>(to[2 * (i % 2)], to[2 * (i % 2) + 1], pair[i], factor);
    }
  }
}

// One bias, from global memory.
__device__ __forceinline__ float load_bias(const OptionParams& p, const uint16_t* from,
                                           int64_t at) {
  const uint16_t bits = __ldg(from + at);
  return p.bias_is_f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
}

// The place of a lane's pairs in a tile.
struct LanePairs {
  int row;         // query of slot 0
  int key;         // of element 0 of product 0
  int last_query;  // that exists: rows past it read its biases and masks, which does not matter
  int last_key;
};

// Adds biases one by one: for blocks that are computed again. A bias of -inf removes its pair, even if the score
// was NaN. Two products at a time, and the rest moves up: all at once would take registers of the main loop.
template <class S>
__device__ __forceinline__ void add_any_bias(Scores<S>& s, const OptionParams& p,
                                             const uint16_t* bias, const LanePairs& lane,
                                             float factor) {
#pragma unroll 1
  for (int first = 0; first < S::kKeyProducts; first += 2) {
    float done[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = min(lane.row + 8 * (e / 2), lane.last_query) * p.bias.query;
        const int key = min(lane.key + 8 * (first + n) + e % 2, lane.last_key);
        const float b = load_bias(p, bias, row + key);
        done[n][e] = b == kNoKey ? kNoKey : fmaf(b, factor, s[n][e]);
      }
    }
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[n][e] = n < S::kKeyProducts - 2 ? s[n + 2][e] : done[n - S::kKeyProducts + 2][e];
      }
    }
  }
}

// step * |distance| for every score. `distance`: key on the diagonal of the lane's row of slot 0, minus the
// lane's first key.
template <class S, int kProducts>
__device__ __forceinline__ void add_alibi(Scores<S>& s, float step, float distance) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto further = static_cast<float>(8 * (e / 2) - 8 * n - e % 2);
      s[n][e] = fmaf(step, fabsf(distance + further), s[n][e]);
    }
  }
}

// Where all pairs of a tile lie on one side of the diagonal: adds the columns' part of ALiBi.
template <class S>
__device__ __forceinline__ void add_alibi_columns(Scores<S>& s, float step) {
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = fmaf(step, static_cast<float>(8 * n + e % 2), s[n][e]);
    }
  }
}

// Above this step in units of log2 per key, scores relative to one end of a tile lose bits at the other end.
inline constexpr float kSteepest = 8;

// The bits of a lane's two rows for the keys of a tile.
template <class S>
struct MaskWords {
  static constexpr int kWords = S::kBlockKv / 32;
  uint32_t word[2][kWords];

  __device__ __forceinline__ void load(const OptionParams& p, const uint32_t* words,
                                       const LanePairs& lane, int first_key) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const uint32_t* const from =
          words + min(lane.row + 8 * slot, lane.last_query) * p.mask.query + first_key / 32;
      if constexpr (kWords == 4) {
        const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
        word[slot][0] = four.x, word[slot][1] = four.y;
        word[slot][2] = four.z, word[slot][3] = four.w;
      } else {
        const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
        word[slot][0] = two.x, word[slot][1] = two.y;
      }
    }
  }

  // `column`: of the lane's first key.
  template <int kProducts>
  __device__ __forceinline__ void apply(Scores<S>& s, int column) const {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
#pragma unroll
      for (int n = 0; n < kProducts; ++n) {
        const uint32_t bits = word[slot][n / 4] >> column;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[n][2 * slot + e];
          score = (bits >> (8 * (n % 4) + e) & 1U) != 0 ? score : kNoKey;
        }
      }
    }
  }
};

// Returns the bits of a mask's row for keys [begin, end) of len_kv, combined by OR over all of them by the lanes of
// a quad. All lanes of the warp call it.
__device__ __forceinline__ uint32_t seen_bits(const uint32_t* row, int begin, int end, int len_kv,
                                              int lane_of_quad) {
  uint32_t seen = 0;
#pragma unroll 4
  for (int first = 0; first < len_kv; first += 128) {
    const int key = first + 32 * lane_of_quad;
    if (key + 32 <= begin || key >= end) continue;
    uint32_t bits = __ldg(row + key / 32);
    if (key < begin) bits &= ~0U << (begin - key);
    if (end - key < 32) bits &= ~(~0U << (end - key));
    seen |= bits;
  }
  __syncwarp();
  seen |= __shfl_xor_sync(0xffffffffU, seen, 1);
  return seen | __shfl_xor_sync(0xffffffffU, seen, 2);
}

}  // namespace flashcore::cuda::forward_sm90::throughput
