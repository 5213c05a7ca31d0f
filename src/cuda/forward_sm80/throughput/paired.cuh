// Long rows by pairs of warps: head dimensions above 192, with the shared memory of 8.0 and 9.0.
//
// 32 query rows of 256 outputs are twice what a warp can hold, and with 16 rows per
// warp, every fragment of K and V serves only one product, which makes shared memory
// the bottleneck. So two warps share 32 rows: each computes the scores of half of a
// tile's keys, both read all probabilities, and each owns half of the columns of O.
//
//   warp 2i     | S of keys  0..31 | P -> shared | O, columns   0..127, += P V |
//   warp 2i + 1 | S of keys 32..63 | P -> shared | O, columns 128..255, += P V |
//
// K and V have one buffer each: V is loaded while scores are computed, and the next K during the
// products with V. Two barriers per tile; the second one also makes P visible to the other warp.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/scores.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/warp_math.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// The geometry. A warp holds as much as with a Config that has half of the columns.
template <PairedConfig kPaired>
struct PairedShape {
  static constexpr Config kWarp = kPaired.warp();
  static constexpr int kThreads = kPaired.threads(), kGroups = kWarp.row_groups;
  static constexpr int kWarpRows = kWarp.warp_rows(), kBlockQ = kPaired.block_q();
  static constexpr int kBlockKv = kPaired.block_kv, kWarpKeys = kBlockKv / 2;
  static constexpr int kColumns = kWarp.head_dim_v;  // of O, per warp
  static constexpr int kQkSteps = kPaired.head_dim / 16, kOutSteps = kColumns / 16;
  static constexpr int kKeySteps = kWarpKeys / 16;  // of a warp's own keys
  static constexpr int kHeldSteps = kPaired.held_q_steps;

  using QTile = tile::SmemTile<kBlockQ, kPaired.head_dim, 2>;  // also O
  using KvTile = tile::SmemTile<kBlockKv, kPaired.head_dim, 2>;
  using PTile = tile::SmemTile<kBlockQ, kBlockKv, 2>;
  using QCopy = TileCopy<QTile, kPaired.head_dim, kThreads>;
  using KvCopy = TileCopy<KvTile, kPaired.head_dim, kThreads>;
  using Scores = throughput::Scores<kGroups, kWarpKeys / 8>;

  static constexpr int kKOffset = QTile::kBytes, kVOffset = kKOffset + KvTile::kBytes;
  static constexpr int kPOffset = kVOffset + KvTile::kBytes;
  static_assert(kPOffset + PTile::kBytes == kPaired.smem_bytes());
};

// Loads consecutive tiles of one matrix.
template <PairedConfig kPaired>
struct PairedLoader {
  using S = PairedShape<kPaired>;
  const unsigned char* source;
  int rows_left;

  __device__ __forceinline__ PairedLoader(const Params& p, const attention::RowMatrix& m,
                                          const Task& task, int first_tile) {
    const int kv_head = kv_head_of(p, task.head);
    const int first = first_tile * S::kBlockKv;
    source =
        S::KvCopy::start(row_pointer<2>(m, task.batch, kv_head, task.sequence.kv_begin + first),
                         2 * m.row, static_cast<int>(threadIdx.x));
    rows_left = static_cast<int>(task.sequence.len_kv) - first;
  }

  // fallback_bytes: size of the rows that the fallback copies at once.
  __device__ __forceinline__ void load(const Params& p, const void* readable, int head_dim,
                                       int64_t fallback_bytes, unsigned char* tile) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int64_t pass_bytes = kPassesOfFallback * fallback_bytes;
    if (p.whole_chunks && rows_left >= S::kBlockKv) {
      source = S::KvCopy::whole(tile, source, pass_bytes, thread);
    } else {
      source = S::KvCopy::part(tile, source, pass_bytes, rows_left, head_dim / 8, readable, thread);
    }
    ptx::cp_async_commit();
    rows_left -= S::kBlockKv;
  }

  static constexpr int kPassesOfFallback = kPaired.threads() / kConfigs[kPaired.fallback].threads();
};

// Q of a warp: its first columns are held in registers, the others read again for every tile.
template <PairedConfig kPaired>
struct PairedQueries {
  using S = PairedShape<kPaired>;
  using Tile = typename S::QTile;
  uint32_t address;
  uint32_t held[S::kGroups][S::kHeldSteps > 0 ? S::kHeldSteps : 1][4];

  __device__ __forceinline__ void read(uint32_t (&a)[S::kGroups][4], int step) const {
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      ptx::ldmatrix_x4(a[g],
                       Tile::template advance<2>(address, step) + g * 16 * Tile::kPanelRowBytes);
    }
  }
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int step = 0; step < S::kHeldSteps; ++step) {
      uint32_t a[S::kGroups][4];
      read(a, step);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) held[g][step][i] = a[g][i];
      }
    }
  }
};

// S = Q K^T for the warp's half of the tile's keys.
template <PairedConfig kPaired, class Element>
__device__ __forceinline__ void paired_qk(typename PairedShape<kPaired>::Scores& s,
                                          const PairedQueries<kPaired>& q, uint32_t k_address) {
  using S = PairedShape<kPaired>;
  using Tile = typename S::KvTile;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < S::kWarpKeys / 8; ++n) {
      s[g][n][0] = s[g][n][1] = s[g][n][2] = s[g][n][3] = 0;
    }
  }
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    uint32_t a[S::kGroups][4];
    if (step < S::kHeldSteps) {
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[g][i] = q.held[g][step < S::kHeldSteps ? step : 0][i];
      }
    } else {
      q.read(a, step);
    }
    const uint32_t column = Tile::template advance<2>(k_address, step);
#pragma unroll
    for (int block = 0; block < S::kKeySteps; ++block) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k, column + block * 16 * Tile::kPanelRowBytes);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        Element::multiply(s[g][2 * block], a[g], k[0], k[1]);
        Element::multiply(s[g][2 * block + 1], a[g], k[2], k[3]);
      }
    }
  }
}

// O += P V for 16-key steps of P against V's rows from v_address on, the warp's columns.
template <PairedConfig kPaired, class Element>
__device__ __forceinline__ void paired_pv(
    WarpState<PairedShape<kPaired>::kWarp>& w,
    const Probabilities<PairedShape<kPaired>::kGroups, PairedShape<kPaired>::kKeySteps>& pr,
    uint32_t v_address) {
  using S = PairedShape<kPaired>;
  using Tile = typename S::KvTile;
#pragma unroll
  for (int block = 0; block < S::kKeySteps; ++block) {
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

// One float per row and side of every pair, in shared memory.
template <PairedConfig kPaired>
using PairNumbers = float[2][PairedShape<kPaired>::kBlockQ];

// Exchanges this lane's numbers, which its whole quad holds, with the
// other warp of the pair. `first`: the warp's first row in the block.
template <PairedConfig kPaired>
__device__ __forceinline__ void exchange(PairNumbers<kPaired>& numbers,
                                         float (&mine)[PairedShape<kPaired>::kGroups][2],
                                         float (&others)[PairedShape<kPaired>::kGroups][2],
                                         int first, int side, int lane) {
  using S = PairedShape<kPaired>;
  const int pair_barrier = 1 + first / S::kWarpRows;
  ptx::named_barrier_sync(pair_barrier, 64);  // the previous contents have been read
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      numbers[side][first + 16 * g + 8 * slot + lane / 4] = mine[g][slot];
    }
  }
  ptx::named_barrier_sync(pair_barrier, 64);
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      others[g][slot] = numbers[side ^ 1][first + 16 * g + 8 * slot + lane / 4];
    }
  }
}

// Raises each row's reference to the pair's largest score so far, plus headroom.
template <PairedConfig kPaired>
__device__ __forceinline__ void raise_paired(const typename PairedShape<kPaired>::Scores& s,
                                             WarpState<PairedShape<kPaired>::kWarp>& w, float scale,
                                             float headroom, PairNumbers<kPaired>& numbers,
                                             int first, int side, int lane) {
  using S = PairedShape<kPaired>;
  float most[S::kGroups][2], others[S::kGroups][2];
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      most[g][slot] = attention::quad_max(
          attention::scaled_max(attention::lane_max(s[g], slot), scale, headroom));
    }
  }
  exchange<kPaired>(numbers, most, others, first, side, lane);
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float old = w.reference[g][slot];
      const float raised = fmaxf(old, fmaxf(most[g][slot], others[g][slot]));
      const float rescale = ptx::exp2_approx(old - attention::finite_reference(raised));
      set_reference<S::kWarp>(w, g, slot, raised, rescale);
    }
  }
}

// Writes P of the warp's keys to its part of the tile of P.
template <PairedConfig kPaired>
__device__ __forceinline__ void share_probabilities(
    const Probabilities<PairedShape<kPaired>::kGroups, PairedShape<kPaired>::kKeySteps>& pr,
    unsigned char* p_tile, int first, int side, int lane) {
  using S = PairedShape<kPaired>;
  using Tile = typename S::PTile;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < S::kWarpKeys / 8; ++n) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int row = first + 16 * g + 8 * slot + lane / 4;
        *reinterpret_cast<uint32_t*>(p_tile + Tile::chunk_offset(row, side * S::kWarpKeys / 8 + n) +
                                     lane % 4 * 4) = pr[g][n / 2][n % 2 * 2 + slot];
      }
    }
  }
}

// Reads the other warp's part.
template <PairedConfig kPaired>
__device__ __forceinline__ void read_probabilities(
    Probabilities<PairedShape<kPaired>::kGroups, PairedShape<kPaired>::kKeySteps>& pr,
    const unsigned char* p_tile, int first, int side, int lane) {
  using S = PairedShape<kPaired>;
  using Tile = typename S::PTile;
  const uint32_t place = ptx::shared_address(p_tile) + rows_first<Tile>(lane) +
                         static_cast<uint32_t>(first * Tile::kPanelRowBytes);
  const uint32_t column = Tile::template advance<S::kWarpKeys / 8>(place, side ^ 1);
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int step = 0; step < S::kKeySteps; ++step) {
      ptx::ldmatrix_x4(pr[g][step],
                       Tile::template advance<2>(column, step) + g * 16 * Tile::kPanelRowBytes);
    }
  }
}

}  // namespace flashcore::cuda::forward_sm80::throughput
