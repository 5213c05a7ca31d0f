// A warp's part of the keys: copies, scores, softmax and outputs.
//
//   first half of the keys    | S |   | max | P = 2^S | O += P V |
//   second half               |   | S | max |         | P = 2^S  | O += P V |
#pragma once

#include <cstdint>

#include "cuda/attention/latency/task.cuh"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm80/latency/copies.cuh"
#include "cuda/forward_sm80/latency/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::forward_sm80::latency {

using attention::latency::Task;

inline constexpr int kGroups = 2;  // copy groups of K, and of V

template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  ptx::cp_async_wait<kPending>();
  __syncwarp();
}

// Copies a warp's keys from `key` on, and their values; the first of its tiles begins at `tile`.
template <class S>
__device__ __forceinline__ void load_whole(const WholeParams& p, uint32_t tile, int batch,
                                           int kv_head, int key, int lane) {
  using Tile = typename S::KvTile;
  constexpr int kHalf = Tile::kRows / kGroups;
  const auto row = static_cast<uint32_t>(lane) / 8, piece = static_cast<uint32_t>(lane) % 8;
  const auto from = [&](const Pieces& of) {
    return static_cast<const uint4*>(of.data) +
           (of.at(static_cast<uint32_t>(batch), static_cast<uint32_t>(kv_head),
                  static_cast<uint32_t>(key) + row) +
            piece);
  };
  const uint4 *const k = from(p.k), *const v = from(p.v);
  const uint32_t to = tile + Tile::chunk_offset(static_cast<int>(row), static_cast<int>(piece));
  copy_whole<Tile, 32, 0, kHalf>(to, k, p.k.row);
  ptx::cp_async_commit();
  copy_whole<Tile, 32, kHalf, Tile::kRows>(to, k, p.k.row);
  ptx::cp_async_commit();
  copy_whole<Tile, 32, 0, kHalf>(to + S::kConfig.kv_bytes(), v, p.v.row);
  ptx::cp_async_commit();
  copy_whole<Tile, 32, kHalf, Tile::kRows>(to + S::kConfig.kv_bytes(), v, p.v.row);
  ptx::cp_async_commit();
}

// Copies a warp's keys, or their values, from `key` on: some of the tile's rows may not exist.
template <class S>
__device__ __forceinline__ void load_matrix(const attention::RowMatrix& m, const Task& task,
                                            unsigned char* tile, int key, int head_dim, bool fills,
                                            int lane) {
  using Tile = typename S::KvTile;
  constexpr int kHalf = Tile::kRows / kGroups;
  const int rows = task.limits.len_kv - key;
  const uint16_t* const from =
      attention::latency::row_pointer(m, task.batch, task.kv_head, int64_t{task.kv_row} + key);
  if (fills && rows >= Tile::kRows) {
    const auto* const piece =
        reinterpret_cast<const uint4*>(from + (lane / 8 * m.row + lane % 8 * kPieceElements));
    const uint32_t to = ptx::shared_address(tile) + Tile::chunk_offset(lane / 8, lane % 8);
    const int64_t stride = m.row / kPieceElements;
    copy_whole<Tile, 32, 0, kHalf>(to, piece, stride);
    ptx::cp_async_commit();
    copy_whole<Tile, 32, kHalf, Tile::kRows>(to, piece, stride);
  } else {
    copy_rows<Tile, 32, 0, kHalf>(tile, from, m.row, rows, head_dim, m.data, lane);
    ptx::cp_async_commit();
    copy_rows<Tile, 32, kHalf, Tile::kRows>(tile, from, m.row, rows, head_dim, m.data, lane);
  }
  ptx::cp_async_commit();
}

template <class S>
__device__ __forceinline__ void load_rows(const attention::latency::Params& p, const Task& task,
                                          unsigned char* tile, int key, int lane) {
  load_matrix<S>(p.k, task, tile, key, p.head_dim_qk, p.fills, lane);
  load_matrix<S>(p.v, task, tile + S::kConfig.kv_bytes(), key, p.head_dim_v, p.fills, lane);
}

template <class S>
struct Warp {
  const Params& params;
  const Task& task;
  unsigned char* own;       // this warp's K and V
  uint32_t q_tile, k_tile;  // shared addresses
  int lane;

  // Scores, then probabilities, of half the keys of a pass.
  static constexpr int kHalfProducts = S::kKeyProducts / 2;
  static constexpr int kHalfBytes = S::kWarpKeys / 2 * S::KvTile::kPanelRowBytes;  // per panel
  using Half = float[kRowGroups][kHalfProducts][4];

  __device__ __forceinline__ void load(int key) const {
    if constexpr (S::kWhole) {
      load_whole<S>(params.whole, k_tile, task.batch, task.kv_head, key, lane);
    } else {
      load_rows<S>(params.problem, task, own, key, lane);
    }
  }

  // Fragments of Q, for all steps or for one.
  using QFragments = uint32_t[S::kQSteps][kRowGroups][4];
  __device__ __forceinline__ void load_q(uint32_t (&a)[kRowGroups][4], int step) const {
    const uint32_t q = q_tile + S::QTile::chunk_offset(lane & 15, lane >> 4);
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
      ptx::ldmatrix_x4(a[g],
                       S::QTile::template advance<2>(q, step) + g * 16 * S::QTile::kPanelRowBytes);
    }
  }

  // Computes the scores of one half's keys.
  __device__ __forceinline__ void scores(Half& s, QFragments& q, int half) const {
    const uint32_t k = k_tile + half * kHalfBytes +
                       S::KvTile::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
#pragma unroll
    for (int i = 0; i < kRowGroups * kHalfProducts * 4; ++i) {
      s[i / (4 * kHalfProducts)][i / 4 % kHalfProducts][i % 4] = 0;
    }
#pragma unroll
    for (int step = 0; step < S::kHeadDim / 16; ++step) {
      if (S::kQSteps == 1) load_q(q[0], step);
      const auto& a = q[S::kQSteps == 1 ? 0 : step];
      const uint32_t column = S::KvTile::template advance<2>(k, step);
#pragma unroll
      for (int block = 0; block < kHalfProducts / 2; ++block) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, column + block * 16 * S::KvTile::kPanelRowBytes);
#pragma unroll
        for (int g = 0; g < kRowGroups; ++g) {
          S::Element::multiply(s[g][2 * block], a[g], b[0], b[1]);
          S::Element::multiply(s[g][2 * block + 1], a[g], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void mask(Half& s, int key) const {
    constexpr attention::Ends kEnds = S::kWhole ? attention::Ends::end : attention::Ends::both;
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int row = task.first_query + 16 * g + 8 * slot + lane / 4;
        const attention::ColumnRange seen =
            attention::visible_columns(task.limits, row, key + 2 * (lane % 4));
        attention::mask_row<kEnds>(s[g], slot, seen);
      }
    }
  }

  // Raises each row's reference, which the exponents of both halves are
  // relative to, to the largest score so far. Rescales the accumulated results.
  template <bool kFirst>
  __device__ __forceinline__ void raise(const Half& first, const Half& second,
                                        Partial<S>& w) const {
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const float most =
            fmaxf(attention::lane_max(first[g], slot), attention::lane_max(second[g], slot));
        const float largest =
            attention::scaled_max(attention::quad_max(most), params.problem.scale_log2);
        if constexpr (kFirst) {
          w.max[g][slot] = largest;
          w.sum[g][slot] = 0;
        } else {
          const float raised = fmaxf(w.max[g][slot], largest);
          const float rescale =
              ptx::exp2_approx(w.max[g][slot] - attention::finite_reference(raised));
          w.max[g][slot] = raised;
          w.sum[g][slot] *= rescale;
#pragma unroll
          for (int n = 0; n < S::kOutProducts; ++n) {
            w.o[g][n][2 * slot] *= rescale;
            w.o[g][n][2 * slot + 1] *= rescale;
          }
        }
      }
    }
  }

  // Computes s = 2^(s * scale - reference) and adds to the sums.
  __device__ __forceinline__ void exponentials(Half& s, Partial<S>& w) const {
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
      const float reference[2] = {attention::finite_reference(w.max[g][0]),
                                  attention::finite_reference(w.max[g][1])};
      float total[2];
      attention::exponentiate<0, kHalfProducts>(s[g], reference, params.problem.scale_log2, total);
      w.sum[g][0] += total[0];
      w.sum[g][1] += total[1];
    }
  }

  // O += P V of one half's keys.
  __device__ __forceinline__ void outputs(const Half& p, Partial<S>& w, int half) const {
    const uint32_t v = k_tile + S::kConfig.kv_bytes() + half * kHalfBytes +
                       S::KvTile::chunk_offset(lane & 15, lane >> 4);
#pragma unroll
    for (int block = 0; block < kHalfProducts / 2; ++block) {
      uint32_t a[kRowGroups][4];
#pragma unroll
      for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto& pair = p[g][2 * block + i / 2];
          a[g][i] = S::Element::pack(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int step = 0; step < S::kHeadDim / 16; ++step) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(
            b, S::KvTile::template advance<2>(v, step) + block * 16 * S::KvTile::kPanelRowBytes);
#pragma unroll
        for (int g = 0; g < kRowGroups; ++g) {
          S::Element::multiply(w.o[g][2 * step], a[g], b[0], b[1]);
          S::Element::multiply(w.o[g][2 * step + 1], a[g], b[2], b[3]);
        }
      }
    }
  }

  // Processes the keys from `key` on, whose copies are in flight. Exponentials
  // of the second half overlap products of the first: they use different units.
  template <bool kFirst>
  __device__ __forceinline__ void pass(Partial<S>& w, int key) const {
    Half first, second;
    QFragments q;
    if (S::kQSteps > 1) {
#pragma unroll
      for (int step = 0; step < S::kQSteps; ++step) load_q(q[step], step);
    }
    wait_for_copies<3>();
    scores(first, q, 0);
    wait_for_copies<2>();
    scores(second, q, 1);
    if (task.tiles.needs_mask(key / attention::latency::kBlockKv)) {
      mask(first, key);
      mask(second, key + S::kWarpKeys / 2);
    }
    raise<kFirst>(first, second, w);
    exponentials(first, w);
    if constexpr (kFirst) {
#pragma unroll
      for (int i = 0; i < kRowGroups * S::kOutProducts * 4; ++i) {
        w.o[i / (4 * S::kOutProducts)][i / 4 % S::kOutProducts][i % 4] = 0;
      }
    }
    wait_for_copies<1>();
    outputs(first, w, 0);
    exponentials(second, w);
    wait_for_copies<0>();
    outputs(second, w, 1);
    __syncwarp();  // keys and values have been read
  }

  // Processes all keys of this warp, at least one. The first copies are in flight.
  __device__ __forceinline__ void attend(Partial<S>& w, int first_key, int end_key) const {
    constexpr int kPassKeys = S::kConfig.pass_keys();
    pass<true>(w, first_key);
#pragma unroll 1
    for (int key = first_key + kPassKeys; key < end_key; key += kPassKeys) {
      load(key);
      pass<false>(w, key);
    }
  }
};

}  // namespace flashcore::cuda::forward_sm80::latency
