// One warpgroup's tile of scores: the products that compute it, its transformations,
// and P. A thread holds rows l / 4 (slot 0) and l / 4 + 8 (slot 1) of its warp's 16,
// columns 8 n + 2 (l % 4) and + 1 of product n (tile/fragment.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

template <class S>
using Scores = float[S::kKeyProducts][4];

// P as the left operand of products of 16 keys each.
template <class S>
using Probabilities = uint32_t[S::kKeySteps][4];

template <class S>
using Outputs = float[S::kOutParts][S::kOutProducts][4];

// A descriptor's lower half is the start address, in units of 16 bytes, and the leading offset; the
// upper half is constant. So only the lower half is held, and advancing by `bytes` is one addition.
__device__ __forceinline__ constexpr uint32_t lower_half(uint64_t descriptor) {
  return static_cast<uint32_t>(descriptor);
}
template <class Tile>
inline constexpr uint32_t kUpperHalf = static_cast<uint32_t>(
    tile::smem_descriptor(0, 0, tile::group_bytes<Tile>(), tile::DescriptorSwizzle::span_128) >>
    32);

template <class Tile>
__device__ __forceinline__ uint64_t descriptor_at(uint32_t lower, uint32_t bytes) {
  return ptx::join_words(lower + (bytes >> 4), kUpperHalf<Tile>);
}

// The left half of a tile of scores.
template <class S>
__device__ __forceinline__ auto& left_half(Scores<S>& s) {
  return reinterpret_cast<float(&)[S::kKeyProducts / 2][4]>(s);
}

// Starts S = Q K^T of the first 8 kProducts keys, as its own
// wgmma group. `q` and `k`: lower halves of the descriptors.
template <class S, int kProducts>
__device__ __forceinline__ void start_qk(float (&s)[kProducts][4], uint32_t q, uint32_t k) {
  using ptx::Accumulate;
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    using QTile = typename S::QTile;
    using KTile = typename S::KTile;
    const uint64_t a = descriptor_at<QTile>(q, tile::k_major_step<QTile>(step));
    const uint64_t b = descriptor_at<KTile>(k, tile::k_major_step<KTile>(step));
    if (step == 0) {
      S::Element::template multiply_ss<Accumulate::overwrite>(s, a, b);
    } else {
      S::Element::template multiply_ss<Accumulate::add>(s, a, b);
    }
  }
  ptx::warpgroup_commit();
}

// Starts O += P V, as its own wgmma group.
template <class S>
__device__ __forceinline__ void start_pv(Outputs<S>& o, const Probabilities<S>& p, uint32_t v) {
  using VTile = typename S::VTile;
  ptx::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < S::kKeySteps; ++step) {
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) {
      const uint32_t bytes = static_cast<uint32_t>(part) * S::kPartPanels * VTile::kPanelBytes +
                             static_cast<uint32_t>(step) * 2 * tile::group_bytes<VTile>();
      S::Element::multiply_rs(o[part], p[step], descriptor_at<VTile>(v, bytes));
    }
  }
  ptx::warpgroup_commit();
}

// Recomputes a warp's 16 rows of S by mma.sync, while Q and K are still in shared memory.
template <class S>
__device__ __forceinline__ void recompute_scores(Scores<S>& s, uint32_t q, uint32_t k, int warp,
                                                 int lane) {
  // Opaque copies keep this rarely needed address arithmetic out of the loop around it.
  ptx::pin(q, k, warp, lane);
  using QTile = typename S::QTile;
  using KTile = typename S::KTile;
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 1
  for (int step = 0; step < S::kQkSteps; ++step) {
    uint32_t a[4];
    ptx::ldmatrix_x4(a, q + QTile::chunk_offset(16 * warp + lane % 16, 2 * step + lane / 16));
    const uint32_t row = k + KTile::chunk_offset(lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, row + n * tile::group_bytes<KTile>());
      S::Element::multiply(s[n], a, b[0], b[1]);
      S::Element::multiply(s[n + 1], a, b[2], b[3]);
    }
  }
}

// Computes capped scores in units of log2 without a special
// function. Returns false if a score is too near the cap for that.
template <class S>
__device__ __forceinline__ bool cap_scores(Scores<S>& s, const Params& p) {
  float fourth[4] = {0, 0, 0, 0};
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float square = s[n][e] * s[n][e];
      fourth[e] = fmaf(square, square, fourth[e]);
      float t = fmaf(square, p.near_cap.terms[3], p.near_cap.terms[2]);
      t = fmaf(square, t, p.near_cap.terms[1]);
      t = fmaf(square, t, p.near_cap.terms[0]);
      s[n][e] *= t;
    }
  }
  return (fourth[0] + fourth[1]) + (fourth[2] + fourth[3]) <= p.near_cap.fourth;  // false for NaN
}

// Scales, and caps if there is a cap, the scores of the first kProducts products.
template <class S, int kProducts>
__device__ __forceinline__ void scale_scores(Scores<S>& s, const Params& p) {
  if (p.softcap.cap_log2 > 0) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = attention::capped_log2(s[n][e], p.softcap);
    }
  } else {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] *= p.scale_log2;
    }
  }
}

// Masks the scores outside the band and the length in a block whose first key is `key`, by selection:
// the old score does not matter. `query`: the lane's row of slot 0. Products kBegin to kEnd.
template <class S, int kBegin, int kEnd>
__device__ __forceinline__ void mask_scores(Scores<S>& s, const BandLimits& limits, int query,
                                            int key, int lane) {
  const bool open_left = limits.open_left();
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const attention::ColumnRange seen =
        attention::visible_columns(limits, query + 8 * slot, key + 2 * (lane % 4));
    attention::mask_row<kBegin, kEnd, attention::Ends::end>(s, slot, seen);
    if (open_left) continue;
    attention::mask_row<kBegin, kEnd, attention::Ends::begin>(s, slot, seen);
  }
}

// A step of the online softmax over the first kProducts products: raises
// the reference to the rows' maxima, exponentiates, and returns the factors
// for the accumulated results and this lane's sums of the exponentials.
//
// A row that has seen no key keeps kNoReference, and so does a row whose scores are all
// below it. A row that ends there, or above -kNoReference, is recomputed (exact_rows.cuh).
inline constexpr float kNoReference = -attention::kLargestReference;

template <class S, int kProducts = S::kKeyProducts>
__device__ __forceinline__ void online_softmax(Scores<S>& s, float (&reference)[2],
                                               float (&rescale)[2], float (&total)[2],
                                               float scale) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float largest = attention::lane_max<kProducts>(s, slot);
    const float raised = fmaxf(reference[slot], attention::quad_max(largest) * scale);
    rescale[slot] = ptx::exp2_approx(reference[slot] - raised);
    reference[slot] = raised;
  }
  attention::exponentiate<0, kProducts>(s, reference, scale, total);
}

}  // namespace flashcore::cuda::forward_sm90::throughput
