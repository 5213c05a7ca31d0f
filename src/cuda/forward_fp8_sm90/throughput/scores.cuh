// One warpgroup's tile of scores: the products that compute it, and P. A
// thread holds rows l / 4 (slot 0) and l / 4 + 8 (slot 1) of its warp's
// 16, columns 8 n + 2 (l % 4) and + 1 of product n (tile/fragment.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/cap.cuh"
#include "cuda/attention/fp8/scores.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/e5m2.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/max_of_three.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/byte_descriptor.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// O and, in the last product, the sums of P, whose columns are all equal.
template <class S>
using Outputs = float[S::kOutProducts + 1][4];

// When a row's reference is set, its largest score becomes P = 2^kTop: exact in e4m3, which ends
// at 448 and has fewer bits below 2^-6. The room above it is for later blocks with larger scores,
// the room below for small probabilities. More room above is needed if the first block is masked:
// its rows may see few keys. With two terms, each block sets references: no room above is needed.
inline constexpr float kTop = 5, kTopOfFew = 2, kTopOfTwoTerms = 8, kLargestP = 448;

// A descriptor's lower half is its start; the upper half is constant.
__device__ __forceinline__ constexpr uint32_t lower_half(uint64_t descriptor) {
  return static_cast<uint32_t>(descriptor);
}
template <class Tile>
__device__ __forceinline__ uint64_t descriptor_at(uint32_t lower, uint32_t bytes) {
  constexpr auto kUpper = static_cast<uint32_t>(tile::byte_descriptor<Tile>(0) >> 32);
  return ptx::join_words(lower + (bytes >> 4), kUpper);
}

// Starts S = Q K^T, as its own wgmma group. `q` and `k`: lower halves of the descriptors.
template <class S>
__device__ __forceinline__ void start_qk(Scores<S>& s, uint32_t q, uint32_t k) {
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    using QTile = typename S::QTile;
    using KTile = typename S::KTile;
    if constexpr (S::kE5M2) {
      ptx::wgmma_ss_e5m2(s, descriptor_at<QTile>(q, tile::byte_step<QTile>(step)),
                         descriptor_at<KTile>(k, tile::byte_step<KTile>(step)),
                         step == 0 ? ptx::Accumulate::overwrite : ptx::Accumulate::add);
    } else {
      ptx::wgmma_ss_e4m3(s, descriptor_at<QTile>(q, tile::byte_step<QTile>(step)),
                         descriptor_at<KTile>(k, tile::byte_step<KTile>(step)),
                         step == 0 ? ptx::Accumulate::overwrite : ptx::Accumulate::add);
    }
  }
  ptx::warpgroup_commit();
}

// Starts O += P V, or O = P V, as its own wgmma group.
template <class S>
__device__ __forceinline__ void start_pv(Outputs<S>& o, const Probabilities<S>& p, uint32_t v,
                                         ptx::Accumulate first) {
#pragma unroll
  for (int step = 0; step < S::kKeySteps; ++step) {
    using VTile = typename S::VTile;
    if constexpr (S::kE5M2) {
      ptx::wgmma_rs_e4m3_e5m2(o, p[step], descriptor_at<VTile>(v, tile::byte_step<VTile>(step)),
                              step == 0 ? first : ptx::Accumulate::add);
    } else {
      ptx::wgmma_rs_e4m3(o, p[step], descriptor_at<VTile>(v, tile::byte_step<VTile>(step)),
                         step == 0 ? first : ptx::Accumulate::add);
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
      ptx::ldmatrix_x4(b, row + n * 8 * KTile::kPanelRowBytes);
      if constexpr (S::kE5M2) {
        ptx::mma_m16n8k32_e5m2(s[n], a, b[0], b[1]);
        ptx::mma_m16n8k32_e5m2(s[n + 1], a, b[2], b[3]);
      } else {
        ptx::mma_m16n8k32_e4m3(s[n], a, b[0], b[1]);
        ptx::mma_m16n8k32_e4m3(s[n + 1], a, b[2], b[3]);
      }
    }
  }
}

// P = 2^(S * scale - reference), in place. `total`: this lane's sum per slot; `most`:
// the largest of the partial sums of eight, which is at least as large as every P.
template <class S>
__device__ __forceinline__ void exponentiate(Scores<S>& s, const float (&reference)[2], float scale,
                                             float (&total)[2], float& most) {
  constexpr int kSums = 4;  // per slot
  float sums[2][kSums] = {};
#pragma unroll
  for (int n = 0; n < S::kKeyProducts + 2; n += 2) {
    if (n < S::kKeyProducts) {
      attention::exponentiate(s[n], s[n], reference, scale);
      attention::exponentiate(s[n + 1], s[n + 1], reference, scale);
    }
    if (n == 0) continue;
#pragma unroll
    for (int i = n - 2; i < n; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[e / 2][i % 2 * 2 + e % 2] += s[i][e];
    }
  }
  most = 0;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    total[slot] = (sums[slot][0] + sums[slot][1]) + (sums[slot][2] + sums[slot][3]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) most = fmaxf(most, sums[slot][i]);
  }
}

// A lane's results for a block's P, which is nonnegative.
struct BlockSums {
  float total[2];    // the sum per slot
  float largest[2];  // the largest per slot; a NaN is larger than all others
  float most;        // a bound on all: at least as large as any of them
};

// exponentiate() with sums only on request (Config): kSums computes the sums, kLargest the largest P.
// Bits of nonnegative numbers compare like the numbers, and one instruction finds the largest of three.
template <class S, bool kSums, bool kLargest>
__device__ __forceinline__ void exponentiate_sparing(Scores<S>& s, const float (&reference)[2],
                                                     float scale, BlockSums& found) {
  constexpr int kParts = 4;  // per slot
  float sums[2][kParts];
  int largest[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < S::kKeyProducts + 2; n += 2) {
    if (n < S::kKeyProducts) {
      attention::exponentiate(s[n], s[n], reference, scale);
      attention::exponentiate(s[n + 1], s[n + 1], reference, scale);
    }
    if (n == 0) continue;
#pragma unroll
    for (int i = n - 2; i < n; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& sum = sums[e / 2][i % 2 * 2 + e % 2];
        if constexpr (kSums) sum = n == 2 ? s[i][e] : sum + s[i][e];
      }
      if constexpr (kLargest) {
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          largest[slot] = ptx::max_of_three(largest[slot], __float_as_int(s[i][2 * slot]),
                                            __float_as_int(s[i][2 * slot + 1]));
        }
      }
    }
  }
  found.most = 0;
  if constexpr (kSums) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float(&part)[kParts] = sums[slot];
      found.total[slot] = (part[0] + part[1]) + (part[2] + part[3]);
#pragma unroll
      for (int i = 0; i < kParts; ++i) found.most = fmaxf(found.most, part[i]);
    }
  }
  if constexpr (kLargest) {
    found.most = __int_as_float(max(largest[0], largest[1]));
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) found.largest[slot] = __int_as_float(largest[slot]);
  }
}

// A step of the online softmax: raises the references to the rows' maxima, exponentiates,
// and returns the factors for the accumulated results, and this lane's sums.
template <class S>
__device__ __forceinline__ void online_softmax(Scores<S>& s, float top, float (&reference)[2],
                                               float (&rescale)[2], float (&total)[2],
                                               float scale) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float largest = attention::quad_max(attention::lane_max(s, slot));
    const float raised = fmaxf(reference[slot], largest * scale - top);
    rescale[slot] = ptx::exp2_approx(reference[slot] - raised);
    reference[slot] = raised;
  }
  if constexpr (S::kConfig.spares_sums) {
    BlockSums found;
    exponentiate_sparing<S, true, false>(s, reference, scale, found);
    total[0] = found.total[0];
    total[1] = found.total[1];
  } else {
    float most;
    exponentiate<S>(s, reference, scale, total, most);
  }
}

// Sets the references of a group of blocks from the scores of its first block.
template <class S>
__device__ __forceinline__ void set_references(const Scores<S>& s, float (&reference)[2],
                                               float scale) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float largest = attention::quad_max(attention::lane_max(s, slot));
    reference[slot] = fmaxf(kNoReference, largest * scale - kTop);
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
