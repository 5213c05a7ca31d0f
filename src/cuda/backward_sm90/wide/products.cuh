// Shared by both kinds of blocks: products of tiles of 64
// rows and 256 columns, weights, and the stores of sums.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/capped.cuh"
#include "cuda/backward_sm90/common/operand.cuh"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::backward_sm90::wide {

using Tile = tile::SmemTile<kRows, kHeadDim, 2>;
static_assert(Tile::kBytes == kTileBytes);

inline constexpr int kScoreProducts = kRows / 8;             // accumulators of m16n8
inline constexpr int kSumProducts = kHeadDim / kPieces / 8;  // per piece
inline constexpr int kConsumerBarrier = 1;                   // named; + group: a consumer's own

using Scores = float[kScoreProducts][4];
using Weights = uint32_t[kRows / 16][4];  // a left operand
using Sums = float[kPieces][kSumProducts][4];

__device__ __forceinline__ uint32_t lane_index() { return ptx::thread_index() % kWarpThreads; }
__device__ __forceinline__ uint32_t warp_in_group() {
  return ptx::thread_index() / kWarpThreads % kWarpgroupWarps;
}
// Signals that this warp no longer uses what the barrier guards.
__device__ __forceinline__ void release(uint32_t barrier) {
  __syncwarp();
  if (lane_index() == 0) ptx::mbarrier_arrive(barrier);
}

// a = X Y^T of two tiles.
template <class Element>
__device__ __forceinline__ void issue_scores(Scores& a, uint32_t left, uint32_t right) {
  const Operand x(left, 16), y(right, 16);
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const uint32_t offset = tile::k_major_step<Tile>(step);
    if (step == 0) {
      Element::template multiply_ss<Accumulate::overwrite, Major::k>(a, x.at(offset), y.at(offset));
    } else {
      Element::template multiply_ss<Accumulate::add, Major::k>(a, x.at(offset), y.at(offset));
    }
  }
  ptx::warpgroup_commit();
}

// sums += p Y, where Y is the tile at `right`.
template <class Element>
__device__ __forceinline__ void issue_sums(Sums& sums, const Weights& p, uint32_t right) {
  constexpr uint32_t kPieceBytes = Tile::kPanels / kPieces * Tile::kPanelBytes;
  const Operand y(right, Tile::kPanelBytes);
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      Element::multiply_rs(sums[piece], p[step],
                           y.at(step * 16 * Tile::kPanelRowBytes + piece * kPieceBytes));
    }
  }
  ptx::warpgroup_commit();
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int n = 0; n < kSumProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[piece][n][e] = 0;
    }
    ptx::warpgroup_pin(sums[piece]);
  }
}
__device__ __forceinline__ void clear(Scores& a) {
#pragma unroll
  for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[n][e] = 0;
  }
  ptx::warpgroup_pin(a);
}
__device__ __forceinline__ void pin(Sums& sums) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) ptx::warpgroup_pin(sums[piece]);
}

template <class Element>
__device__ __forceinline__ void pack(Weights& p, const Scores& a) {
#pragma unroll
  for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      p[n / 2][n % 2 * 2 + slot] = Element::pack(a[n][2 * slot], a[n][2 * slot + 1]);
    }
  }
}

// Returns whether a lane's sums are all finite.
__device__ __forceinline__ bool all_finite(const Sums& sums) {
  float zero = 0;  // or NaN
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int n = 0; n < kSumProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) zero = fmaf(sums[piece][n][e], 0, zero);
    }
  }
  return zero == 0;
}

// Writes the sums of a consumer, times scale, to the tile at `tile`
// in shared memory, which only this consumer's products have read.
template <class Element>
__device__ __forceinline__ void stage_sums(const Sums& sums, float scale, uint32_t tile,
                                           uint32_t group) {
  const int own_barrier = kConsumerBarrier + static_cast<int>(group);
  const uint32_t l = lane_index(), own_row = warp_in_group() * 16 + l % 16;
  ptx::named_barrier_sync(own_barrier, kWarpgroupThreads);  // all warps are done with the tile
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int n = 0; n < kSumProducts; n += 2) {
      const float(&low)[4] = sums[piece][n], (&high)[4] = sums[piece][n + 1];
      const uint32_t chunk = piece * kSumProducts + n + l / 16;
      ptx::stmatrix_x4(tile + chunk / 8 * Tile::kPanelBytes + own_row * Tile::kPanelRowBytes +
                           ((chunk % 8 ^ own_row % 8) << 4),
                       Element::pack(low[0] * scale, low[1] * scale),
                       Element::pack(low[2] * scale, low[3] * scale),
                       Element::pack(high[0] * scale, high[1] * scale),
                       Element::pack(high[2] * scale, high[3] * scale));
    }
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(own_barrier, kWarpgroupThreads);
}

// Stores a staged tile to rows from `row` on.
__device__ __forceinline__ void store_tile(uint32_t tile, const CUtensorMap& map, int row, int rows,
                                           int head, int batch) {
  if (ptx::thread_index() % kWarpgroupThreads == 0) {
    if (row < rows) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        ptx::tma_store_4d(&map, tile + panel * Tile::kPanelBytes, panel * kPanelColumns, row, head,
                          batch);
      }
    }
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
}

// Stores the first `left` rows of a staged tile to rows from `row` on of a
// packed tensor, where the following rows may belong to another sequence.
__device__ __forceinline__ void store_rows(uint32_t tile, const Target& target, int columns,
                                           int row, int left, int head) {
  constexpr int kChunks = kHeadDim / 8;
  auto* const to =
      static_cast<uint16_t*>(target.data) + head * target.head + int64_t{row} * target.row;
  const auto thread = static_cast<int>(ptx::thread_index() % kWarpgroupThreads);
#pragma unroll 1
  for (int i = thread; i < kRows * kChunks; i += kWarpgroupThreads) {
    const int own = i / kChunks, chunk = i % kChunks;
    if (own >= left || chunk * 8 >= columns) continue;
    const uint32_t from = tile + chunk / 8 * Tile::kPanelBytes + own * Tile::kPanelRowBytes +
                          ((chunk % 8 ^ own % 8) << 4);
    *reinterpret_cast<uint4*>(to + own * target.row + chunk * 8) = ptx::load_shared_x4(from);
  }
}

// Copies all panels of a tile.
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                          int row, int head, int batch) {
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &map, barrier, panel * kPanelColumns, row,
                     head, batch);
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
