// The three phases of a tile, by one warp: S = Q K^T, P = 2^(S - reference), O += P V.
//
// Fragments of K and V are loaded from shared memory once for all row groups of the warp.
#pragma once

#include <cstdint>

#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Byte offset of the row that this lane passes to ldmatrix, within a 16
// x 16 block at the tile's start: rows first for Q and V (whose matrices
// are rows 0-7, 8-15, then the next 8 columns), columns first for K.
template <class Tile>
__device__ __forceinline__ uint32_t rows_first(int lane) {
  return Tile::chunk_offset(lane & 15, lane >> 4);
}
template <class Tile>
__device__ __forceinline__ uint32_t columns_first(int lane) {
  return Tile::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

// Q of a warp: held in registers, or read again for every tile.
template <Config kConfig>
struct QueryFragments {
  using Tile = typename Shape<kConfig>::QTile;
  static constexpr bool kHeld = kConfig.q_in_registers;
  static constexpr int kHeldSteps = kHeld ? Shape<kConfig>::kQkSteps : 1;

  uint32_t address;  // of this lane's row of the warp's first block
  uint32_t held[kConfig.row_groups][kHeldSteps][4];

  __device__ __forceinline__ void place(const void* q_tile, int thread) {
    address = ptx::shared_address(q_tile) + rows_first<Tile>(thread % 32) +
              static_cast<uint32_t>(thread / 32 * kConfig.warp_rows() * Tile::kPanelRowBytes);
  }
  __device__ __forceinline__ void read(int step) {
#pragma unroll
    for (int g = 0; g < kConfig.row_groups; ++g) {
      ptx::ldmatrix_x4(held[g][kHeld ? step : 0],
                       Tile::template advance<2>(address, step) + g * 16 * Tile::kPanelRowBytes);
    }
  }
};

// Computes the scores of as many keys as s has room for, from the key at k_address on.
template <Config kConfig, class Element, int kProducts>
__device__ __forceinline__ void multiply_qk(Scores<kConfig.row_groups, kProducts>& s,
                                            QueryFragments<kConfig>& q, uint32_t k_address) {
  using S = Shape<kConfig>;
  using Tile = typename S::KTile;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) s[g][n][0] = s[g][n][1] = s[g][n][2] = s[g][n][3] = 0;
  }
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    if constexpr (!kConfig.q_in_registers) q.read(step);
    const uint32_t column = Tile::template advance<2>(k_address, step);
#pragma unroll
    for (int block = 0; block < kProducts / 2; ++block) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k, column + block * 16 * Tile::kPanelRowBytes);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        const auto& a = q.held[g][kConfig.q_in_registers ? step : 0];
        Element::multiply(s[g][2 * block], a, k[0], k[1]);
        Element::multiply(s[g][2 * block + 1], a, k[2], k[3]);
      }
    }
  }
}

// P as the left operand of products of 16 keys each.
template <int kGroups, int kSteps>
using Probabilities = uint32_t[kGroups][kSteps][4];

template <Config kConfig, class Element, int kSteps>
__device__ __forceinline__ void multiply_pv(WarpState<kConfig>& w,
                                            const Probabilities<kConfig.row_groups, kSteps>& pr,
                                            uint32_t v_address) {
  using S = Shape<kConfig>;
  using Tile = typename S::VTile;
#pragma unroll
  for (int block = 0; block < kSteps; ++block) {
#pragma unroll
    for (int step = 0; step < S::kOutSteps; ++step) {
      uint32_t v[4];
      ptx::ldmatrix_x4_trans(
          v, Tile::template advance<2>(v_address, step) + block * 16 * Tile::kPanelRowBytes);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        Element::multiply(w.o[g][2 * step], pr[g][block], v[0], v[1]);
        Element::multiply(w.o[g][2 * step + 1], pr[g][block], v[2], v[3]);
      }
    }
  }
}

// The amount, in log2, by which scores may exceed the online softmax's reference before the reference is
// raised. In fp32, a P of 2^8 is as exact as any other, and after the first tiles nothing is rescaled
// any more. Among 16-bit numbers, 1 (the P of the largest score) is exact and its neighbours are not:
// there, references are raised at once, and only slices without a new maximum need no rescaling.
inline constexpr float kSlack = 8;

// Sets a row's new reference: what has been accumulated is multiplied by `rescale`.
template <Config kConfig>
__device__ __forceinline__ void set_reference(WarpState<kConfig>& w, int g, int slot,
                                              float reference, float rescale) {
  w.reference[g][slot] = reference;
  w.sum[g][slot] *= rescale;
#pragma unroll
  for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
    w.o[g][n][2 * slot] *= rescale;
    w.o[g][n][2 * slot + 1] *= rescale;
  }
}

// Raises a row's reference if the largest of the lane's scores, per `largest_of`,
// `passes` it. The new reference is `raised(most, old)`, with `most` the quad's largest;
// accumulated results are multiplied by 2 to the power of `difference(old, raised)`.
template <Config kConfig, int kProducts, class LargestOf, class Passes, class Raised,
          class Difference>
__device__ __forceinline__ void raise_references(const Scores<kConfig.row_groups, kProducts>& s,
                                                 WarpState<kConfig>& w, LargestOf largest_of,
                                                 Passes passes, Raised raised_to,
                                                 Difference difference) {
  float largest[kConfig.row_groups][2];  // of this lane
  bool raise = false;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      largest[g][slot] = largest_of(attention::lane_max(s[g], slot));
      raise = raise || passes(largest[g][slot], w.reference[g][slot]);
    }
  }
  if (!__any_sync(0xffffffffU, raise)) return;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float old = w.reference[g][slot];
      const float raised = raised_to(attention::quad_max(largest[g][slot]), old);
      const float base = attention::finite_reference(raised);
      set_reference<kConfig>(w, g, slot, raised, ptx::exp2_approx(difference(old, base)));
    }
  }
}

// Softmax::stale: raises each row's reference, in units of log2,
// to the largest score so far times `scale`, plus `headroom`.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void raise_reference(const Scores<kConfig.row_groups, kProducts>& s,
                                                WarpState<kConfig>& w, float scale,
                                                float headroom) {
  raise_references<kConfig>(
      s, w, [&](float most) { return attention::scaled_max(most, scale, headroom); },
      [](float largest, float old) { return largest > old; },
      [](float most, float old) { return fmaxf(most, old); },
      [](float old, float base) { return old - base; });
}

// The other softmaxes: references are scores, and differences are scaled by `unit`, which
// is exact for every score that counts, however large. Raises the reference of each row
// that has a score more than `slack` (log2) above it to the largest score so far.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void raise_exactly(const Scores<kConfig.row_groups, kProducts>& s,
                                              WarpState<kConfig>& w, float unit, float slack) {
  const auto passes = [=](float largest, float old) { return (largest - old) * unit > slack; };
  raise_references<kConfig>(
      s, w, [](float most) { return most; }, passes,
      [=](float most, float old) { return passes(most, old) ? most : old; },
      [=](float old, float base) { return (old - base) * unit; });
}

// Computes s = 2^((s - reference) * unit) and the sums; see raise_exactly.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void exponentiate_exactly(Scores<kConfig.row_groups, kProducts>& s,
                                                     WarpState<kConfig>& w, float unit) {
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    const float base[2] = {attention::finite_reference(w.reference[g][0]),
                           attention::finite_reference(w.reference[g][1])};
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[g][n][e] = ptx::exp2_approx((s[g][n][e] - base[e / 2]) * unit);
      w.sum[g][0] += s[g][n][0] + s[g][n][1];
      w.sum[g][1] += s[g][n][2] + s[g][n][3];
    }
  }
}

// Computes s = 2^(s * scale - reference) and the sums. kSafe: rows may have no reference yet.
template <Config kConfig, bool kSafe, int kProducts>
__device__ __forceinline__ void exponentiate(Scores<kConfig.row_groups, kProducts>& s,
                                             WarpState<kConfig>& w, float scale) {
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
    float base[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      base[slot] = w.reference[g][slot];
      if (kSafe) base[slot] = attention::finite_reference(base[slot]);
    }
    attention::exponentiate_at_once(s[g], base, scale, w.sum[g]);
  }
}

// Packs the accumulators of two products as the left operand of the next product.
template <class Element, int kGroups, int kProducts>
__device__ __forceinline__ void pack(Probabilities<kGroups, kProducts / 2>& pr,
                                     const Scores<kGroups, kProducts>& s) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) attention::pack<Element>(pr[g], s[g]);
}

// s -= the part that pack() kept.
template <class Element, int kGroups, int kProducts>
__device__ __forceinline__ void take_rest(Scores<kGroups, kProducts>& s,
                                          const Probabilities<kGroups, kProducts / 2>& pr) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t word = pr[g][n / 2][n % 2 * 2 + e / 2];
        s[g][n][e] -= Element::to_float(static_cast<uint16_t>(e % 2 == 0 ? word : word >> 16));
      }
    }
  }
}

// Above this, the division of finish_row is not defined.
inline constexpr float kLargestSum = 1e30F;

// The test of attention/large_reference.hpp, for references that row_is_right gets in units of log2.
__device__ __forceinline__ bool is_large(float reference) {
  return fabsf(reference) > attention::kLargestReference && reference != kNoKey;
}

// Returns false if a row's outputs may be wrong: an output is not finite although the
// sum is not NaN or, with stale references, the sum or the reference is too large.
// fp32: a NaN sum, too, may come from the parts of an infinite or very large number.
template <Config kConfig, class Element>
__device__ __forceinline__ bool row_is_right(const WarpState<kConfig>& w, int g, int slot,
                                             float sum, bool stale) {
  float zero = 0;  // NaN once one output is not finite
#pragma unroll
  for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
    zero = fmaf(w.o[g][n][2 * slot], 0.0F, zero);
    zero = fmaf(w.o[g][n][2 * slot + 1], 0.0F, zero);
  }
  const bool small = sum < kLargestSum && !is_large(w.reference[g][slot]);
  return (!stale || small) && (zero == 0 || (sum != sum && !kIsFp32<Element>));
}

// Completes the row sums. Returns false if some row's outputs may be wrong.
template <Config kConfig, class Element>
__device__ __forceinline__ bool finish_sums(WarpState<kConfig>& w, bool stale) {
  bool right = true;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float sum = w.sum[g][slot] = attention::quad_sum(w.sum[g][slot]);
      right = right && row_is_right<kConfig, Element>(w, g, slot, sum, stale);
    }
  }
  return right;
}

// Returns whether some row's sum is so far below its reference that P may have
// lost bits, or is NaN, possibly from a pair that a bias of -inf removes.
template <Config kConfig>
__device__ __forceinline__ bool lost_bits(const WarpState<kConfig>& w, float smallest_sum) {
  bool lost = false;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      lost = lost || (w.reference[g][slot] > kNoKey && !(w.sum[g][slot] >= smallest_sum));
    }
  }
  return lost;
}

}  // namespace flashcore::cuda::forward_sm80::throughput
