// The joint kernel of backward_sm80: a block owns keys, and one loop over the query tiles
// that see them computes dK and dV, in registers, and these keys' part of dQ, in memory.
//
//   tile n    : | wait | S, T | P, dS | dV += P^T dO, dK += dS^T Q | barrier | dQ = dS K | add |
//   tile n + 1:                                                              | load -->
//
// Scores are transposed, with keys as rows: P^T and dS^T leave the accumulators as left operands
// of the products with dO and Q. Only dS passes through shared memory, for dQ, whose sum is over
// all keys of the block. Blocks add to a tile of dQ in the order of their keys, each warp in its
// turn, so the result is deterministic. A block waits only for blocks with older tickets.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/joint_sums.hpp"
#include "cuda/backward_sm80/general/joint_tile.cuh"
#include "cuda/backward_sm80/general/products.cuh"
#include "cuda/backward_sm80/general/scores.cuh"
#include "cuda/backward_sm80/general/store.cuh"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/backward_sm80/general/tile_load.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/load_acquire.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/turns.cuh"

namespace flashcore::cuda::backward_sm80::general {

template <JointConfig kConfig>
struct JointShape {
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr bool kShares = kConfig.sharing > 1;
  static constexpr int kColumns =
      kConfig.head_dim / 8 / kConfig.sharing;           // m16n8 products of dK and dV
  static constexpr int kProducts = kConfig.step_q / 8;  // of scores
  static constexpr int kStepQueries = kConfig.step_q * kConfig.sharing;  // of all sharing warps
  static constexpr int kSteps = kConfig.block_q / kStepQueries;
  using KvTile = tile::SmemTile<kConfig.block_kv(), kConfig.head_dim, 2>;
  using QTile = tile::SmemTile<kConfig.block_q, kConfig.head_dim, 2>;
  using DsTile = tile::SmemTile<kConfig.block_kv(), kConfig.block_q, 2>;  // one row per key
  using Sums = JointSums<kConfig>;
  using Gradient = float[kRowTiles][kColumns][4];
  using Scores = float[kRowTiles][kProducts][4];
  using Packed = uint32_t[kRowTiles][kProducts / 2][4];  // scores as left operands

  static constexpr int kVOffset = KvTile::kBytes;
  static constexpr int kQOffset = 2 * KvTile::kBytes, kDoOffset = kQOffset + QTile::kBytes;
  static constexpr int kDsOffset = kDoOffset + QTile::kBytes;
  static constexpr int kWeightsOffset = kDsOffset + DsTile::kBytes;  // if warps share keys
  static constexpr int kRowStatsOffset = kDsOffset + kConfig.ds_bytes();
  static constexpr int kPlaceOffset = kRowStatsOffset + kConfig.block_q * 8;
  static_assert(kPlaceOffset + JointConfig::kPlaceBytes == kConfig.smem_bytes());
};

// A block's task, in shared memory: the loop has no registers for it.
struct JointPlace {
  Task task;
  attention::BandLimits limits;  // per key
  attention::TileRange range;    // of query tiles
  int turns;                     // over all heads that share the keys; -1: the block has no rows
  int first_head;                // of those heads

  // The iteration with `left` iterations to go: tiles of a head from last to first, head by head.
  struct Work {
    int head, tile;
  };
  __device__ __forceinline__ Work work(int left) const {
    const int done = turns - left, tiles = range.size();
    return {first_head + done / tiles, range.end - 1 - done % tiles};
  }
};
static_assert(sizeof(JointPlace) <= JointConfig::kPlaceBytes);

template <JointConfig kConfig>
__device__ __forceinline__ JointPlace find_place(const Params& p) {
  JointPlace place;
  const auto ticket = static_cast<uint32_t>(atomicAdd(p.joint.next_block, 1ULL));
  place.task = find_task<false>(p, p.by_joint_keys, ticket, kConfig.block_kv());
  const Task& task = place.task;
  place.limits = limits_of<false>(p, task.entry);
  place.range = attention::tile_range(place.limits, task.entry.len_kv, task.first,
                                      task.first + kConfig.block_kv(), kConfig.block_q);
  const int group = p.heads_q / p.heads_kv;
  place.turns = max(place.range.size(), 0) * group;
  place.first_head = task.head * group;
  const bool packed = p.cu_seqlens_q.data != nullptr;
  if (task.first >= (packed ? task.entry.len_kv : p.seqlen_kv)) place.turns = -1;
  return place;
}

// s = K Q^T and t = V dO^T of a step, interleaved, so that each fills the other's latency. k and q
// are shared addresses of the warp's rows and of the step's; V and dO follow at the same distances.
template <JointConfig kConfig, class Element>
__device__ __forceinline__ void multiply_scores(typename JointShape<kConfig>::Scores& s,
                                                typename JointShape<kConfig>::Scores& t, uint32_t k,
                                                uint32_t q, int lane) {
  using S = JointShape<kConfig>;
  using XTile = typename S::KvTile;
  using YTile = typename S::QTile;
  const uint32_t x_row = k + rows_first<XTile>(lane), y_row = q + columns_first<YTile>(lane);
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
    clear(s[i]);
    clear(t[i]);
  }
#pragma unroll
  for (int step = 0; step < XTile::kRowChunks / 2; ++step) {
    uint32_t from_k[S::kRowTiles][4], from_v[S::kRowTiles][4];
    const uint32_t row = XTile::template advance<2>(x_row, step);
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
      ptx::ldmatrix_x4(from_k[i], row + i * 16 * XTile::kPanelRowBytes);
      ptx::ldmatrix_x4(from_v[i], row + S::kVOffset + i * 16 * XTile::kPanelRowBytes);
    }
    const uint32_t column = YTile::template advance<2>(y_row, step);
#pragma unroll
    for (int block = 0; block < S::kProducts / 2; ++block) {
      uint32_t from_q[4], from_d_o[4];
      const uint32_t at = column + block * 16 * YTile::kPanelRowBytes;
      ptx::ldmatrix_x4(from_q, at);
      ptx::ldmatrix_x4(from_d_o, at + S::kDoOffset - S::kQOffset);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i) {
        Element::multiply(s[i][2 * block], from_k[i], from_q[0], from_q[1]);
        Element::multiply(s[i][2 * block + 1], from_k[i], from_q[2], from_q[3]);
        Element::multiply(t[i][2 * block], from_v[i], from_d_o[0], from_d_o[1]);
        Element::multiply(t[i][2 * block + 1], from_v[i], from_d_o[2], from_d_o[3]);
      }
    }
  }
}

// sums += A Y. y: shared address of the step's rows, at the warp's columns.
// left(i, block): ldmatrix's result for A's rows 16 i and columns 16 block.
template <JointConfig kConfig, class Element, class Left>
__device__ __forceinline__ void multiply_rows(typename JointShape<kConfig>::Gradient& sums,
                                              Left left, uint32_t y, int lane) {
  using S = JointShape<kConfig>;
  using YTile = typename S::QTile;
  // With more unrolling, fragments that are read early take registers that all features need.
  constexpr int kUnrolled = S::kShares && S::kRowTiles == 1 ? 1 : S::kStepQueries / 16;
  const uint32_t y_row = y + rows_first<YTile>(lane);
#pragma unroll kUnrolled
  for (int block = 0; block < S::kStepQueries / 16; ++block) {
    uint32_t a[S::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) left(a[i], i, block);
#pragma unroll
    for (int step = 0; step < S::kColumns / 2; ++step) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(
          b, YTile::template advance<2>(y_row, step) + block * 16 * YTile::kPanelRowBytes);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i) {
        Element::multiply(sums[i][2 * step], a[i], b[0], b[1]);
        Element::multiply(sums[i][2 * step + 1], a[i], b[2], b[3]);
      }
    }
  }
}

template <JointConfig kConfig, class Element>
__device__ __forceinline__ void pack_scores(typename JointShape<kConfig>::Packed& packed,
                                            const typename JointShape<kConfig>::Scores& s) {
  using S = JointShape<kConfig>;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int block = 0; block < S::kProducts / 2; ++block) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float(&from)[4] = s[i][2 * block + part / 2];
        packed[i][block][part] = Element::pack(from[part % 2 * 2], from[part % 2 * 2 + 1]);
      }
    }
  }
}

// Stores the warp's dS (or P) of a step; `first_row` and `first_query`: in the tile.
template <JointConfig kConfig>
__device__ __forceinline__ void store_packed(unsigned char* tile,
                                             const typename JointShape<kConfig>::Packed& packed,
                                             int first_row, int first_query, int lane) {
  using S = JointShape<kConfig>;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
    for (int block = 0; block < S::kProducts / 2; ++block) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int row = first_row + 16 * i + lane / 4 + 8 * (part % 2);
        const int query = first_query + 16 * block + 8 * (part / 2) + 2 * (lane % 4);
        *reinterpret_cast<uint32_t*>(tile + S::DsTile::offset(row, query)) = packed[i][block][part];
      }
    }
  }
}

// Computes the warp's part of dS K, which is [queries, head_dim].
template <JointConfig kConfig, class Element>
__device__ __forceinline__ void multiply_dq(float (&dq)[2][JointShape<kConfig>::Sums::kColumns][4],
                                            uint32_t ds, uint32_t k, int warp, int lane) {
  using S = JointShape<kConfig>;
  using Sums = typename S::Sums;
  using DsTile = typename S::DsTile;
  using KvTile = typename S::KvTile;
  const uint32_t a_row =
      DsTile::template advance<2>(ds + columns_first<DsTile>(lane), Sums::first_row_tile(warp));
  const uint32_t b_row =
      KvTile::template advance<2>(k + rows_first<KvTile>(lane), Sums::first_column(warp) / 2);
  clear(dq[0]);
  clear(dq[1]);
#pragma unroll
  for (int step = 0; step < kConfig.block_kv() / 16; ++step) {
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::ldmatrix_x4_trans(
          a[i], DsTile::template advance<2>(a_row, i) + step * 16 * DsTile::kPanelRowBytes);
    }
#pragma unroll
    for (int column = 0; column < Sums::kColumns / 2; ++column) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(
          b, KvTile::template advance<2>(b_row, column) + step * 16 * KvTile::kPanelRowBytes);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Element::multiply(dq[i][2 * column], a[i], b[0], b[1]);
        Element::multiply(dq[i][2 * column + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// A warp's position in the order of additions to its part of a tile of dQ.
struct Turn {
  unsigned long long* count;  // null: unordered
  int before;                 // number of blocks before this one

  __device__ __forceinline__ bool is_first() const { return count != nullptr && before == 0; }
  __device__ __forceinline__ bool has_come() const {
    return count == nullptr || before == 0 ||
           ptx::load_acquire(count) >= static_cast<unsigned long long>(before);
  }
};

// Returns the tile of dQ that is added to with `left` iterations to go.
template <JointConfig kConfig>
__device__ __forceinline__ int64_t dq_tile(const Params& p, const JointPlace& place, int left) {
  const auto [head, tile] = place.work(left);
  return joint_tile(p, place.task.entry, place.task.batch, head, kConfig.block_q, tile);
}

template <JointConfig kConfig>
__device__ __forceinline__ Turn find_turn(const Params& p, const JointPlace& place, int left,
                                          int warp) {
  if (p.joint.turns == nullptr) return {nullptr, 0};
  const Task& task = place.task;
  const int begin = place.work(left).tile * kConfig.block_q;
  const attention::TileRange keys =
      attention::tile_range(limits_of<true>(p, task.entry), task.entry.len_q, begin,
                            begin + kConfig.block_q, kConfig.block_kv());
  return {p.joint.turns + dq_tile<kConfig>(p, place, left) * kConfig.warps + warp,
          task.first / kConfig.block_kv() - keys.begin};
}

// Adds the warp's part of a tile; the first one in an order stores it.
template <JointConfig kConfig>
__device__ __forceinline__ void add_dq(float* tile_sums, bool is_first,
                                       const float (&dq)[2][JointShape<kConfig>::Sums::kColumns][4],
                                       int warp, int lane) {
  using Sums = typename JointShape<kConfig>::Sums;
  float* const sums = tile_sums + Sums::offset(warp, 0, 0) + 4 * lane;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int column = 0; column < Sums::kColumns; ++column) {
      float* const at = sums + Sums::offset(0, i, column);
      if (is_first) {
        *reinterpret_cast<float4*>(at) =
            make_float4(dq[i][column][0], dq[i][column][1], dq[i][column][2], dq[i][column][3]);
      } else {
        ptx::add_f32x4(at, dq[i][column]);
      }
    }
  }
}

// Publishes the lanes' additions. This waits for all of them, so it is done a step later.
__device__ __forceinline__ void give_turn(unsigned long long*& turn, int lane) {
  __syncwarp();
  if (lane == 0 && turn != nullptr) ptx::count_turn(turn);
  turn = nullptr;
}

// Takes an index, like gradient_kernel.
template <int kConfigIndex, class Element, Features kFeatures>
__global__ void __launch_bounds__(joint_config_of(kConfigIndex, kFeatures).threads())
    joint_kernel(const __grid_constant__ Params p) {
  constexpr JointConfig kConfig = joint_config_of(kConfigIndex, kFeatures);
  using S = JointShape<kConfig>;
  constexpr int kWarpColumns = 8 * S::kColumns;  // of dK and dV
  constexpr int kColumnBytes = kWarpColumns / S::QTile::kPanelColumns * S::QTile::kPanelBytes;
  unsigned char* const shared = ptx::dynamic_shared();
  JointPlace& place = *reinterpret_cast<JointPlace*>(shared + S::kPlaceOffset);
  if (ptx::thread_index() == 0) place = find_place<kConfig>(p);
  __syncthreads();
  const Task& task = place.task;
  const attention::Entry& entry = task.entry;
  const int turns = place.turns;
  if (turns < 0) return;

  float2* const row_stats = reinterpret_cast<float2*>(shared + S::kRowStatsOffset);
  // Each use reads the thread index again: otherwise values derived
  // from it would be kept in registers, which the loop does not have.
  const auto load = [&](int part, const Source& source, int head, int first_row, int begin,
                        int length, auto tile) {
    const attention::RowMatrix& m = source.matrix;
    const int thread = ptx::thread_index();
    const int64_t first =
        task.batch * m.batch + head * m.head + (int64_t{first_row} + begin) * m.row;
    load_tile_quickly<Element, decltype(tile), kConfig.threads()>(shared + part, source, first,
                                                                  length - begin, thread);
  };
  const auto load_queries = [&](const JointPlace::Work& work) {
    const auto [head, tile] = work;
    const int begin = tile * kConfig.block_q;
    load(S::kQOffset, p.q_tiles, head, entry.q_row, begin, entry.len_q, typename S::QTile{});
    load(S::kDoOffset, p.d_o_tiles, head, entry.q_row, begin, entry.len_q, typename S::QTile{});
    ptx::cp_async_commit();
  };
  // LSE and delta of a tile: one per thread, stored later.
  const auto load_stats = [&](const JointPlace::Work& work) {
    const int thread = ptx::thread_index();
    const int query = work.tile * kConfig.block_q + thread;
    if (thread >= kConfig.block_q || query >= entry.len_q) return make_float2(0, 0);
    return p.rows[row_number(p, entry, task.batch, work.head, query)];
  };

  typename S::Gradient dk, dv;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
    clear(dk[i]);
    clear(dv[i]);
  }
  float2 stats{};
  unsigned long long* turn_to_give = nullptr;
  if (turns > 0) {
    load(0, p.k_tiles, task.head, entry.kv_row, task.first, entry.len_kv, typename S::KvTile{});
    load(S::kVOffset, p.v_tiles, task.head, entry.kv_row, task.first, entry.len_kv,
         typename S::KvTile{});
    load_queries(place.work(turns));
    stats = load_stats(place.work(turns));
  }
  const uint32_t base = ptx::shared_address(shared);
#pragma unroll 1
  for (int left = turns; left > 0; --left) {
    const int thread = ptx::thread_index(), warp = thread / 32, lane = thread % 32;
    if (thread < kConfig.block_q) row_stats[thread] = stats;
    ptx::cp_async_wait<0>();
    __syncthreads();
    const auto [head, tile] = place.work(left);
#pragma unroll 1
    for (int step = 0; step < S::kSteps; ++step) {
      const bool banded =
          place.range.needs_mask(tile) || task.first + kConfig.block_kv() > entry.len_kv;
      const ScoreTerms terms =
          kFeatures == Features::all ? score_terms(p, entry, task.batch, head) : ScoreTerms{};
      const PhiloxKey key =
          kFeatures == Features::all && p.dropout ? dropout_key_of(p) : PhiloxKey{};
      constexpr int kQueryBytes = S::QTile::kPanelRowBytes;
      const int first_row = kConfig.warp_keys() * (warp / kConfig.sharing);
      const int part = warp % kConfig.sharing;  // among the warps that share keys
      const int step_query = step * S::kStepQueries,
                first_query = step_query + part * kConfig.step_q;
      const uint32_t q = base + S::kQOffset, d_o = base + S::kDoOffset;
      const uint32_t rows = first_row * S::KvTile::kPanelRowBytes;
      typename S::Scores s, t;
      give_turn(turn_to_give, lane);
      multiply_scores<kConfig, Element>(s, t, base + rows, q + first_query * kQueryBytes, lane);
      const float2* const step_stats = row_stats + first_query + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i) {
        const LanePlace at{task.batch, head, task.first + first_row + 16 * i + lane / 4,
                           tile * kConfig.block_q + first_query + 2 * (lane % 4)};
        weigh<false, kFeatures>(
            s[i], t[i], p, terms, key, at, place.limits, entry.len_kv, banded, false,
            [&](int n, int e) {
              const float2 one = step_stats[8 * n + e % 2];
              return RowStats{one.x, one.y};
            },
            [](int, int, int, int, bool, float) {});
      }
      typename S::Packed weights, ds;
      pack_scores<kConfig, Element>(weights, s);
      pack_scores<kConfig, Element>(ds, t);
      store_packed<kConfig>(shared + S::kDsOffset, ds, first_row, first_query, lane);
      const uint32_t columns = step_query * kQueryBytes + part * kColumnBytes;
      if constexpr (!S::kShares) {
        const auto of = [](const typename S::Packed& packed) {
          return [&packed](uint32_t(&a)[4], int i, int block) {
#pragma unroll
            for (int one = 0; one < 4; ++one) a[one] = packed[i][block][one];
          };
        };
        multiply_rows<kConfig, Element>(dv, of(weights), d_o + columns, lane);
        multiply_rows<kConfig, Element>(dk, of(ds), q + columns, lane);
      } else {
        using DsTile = typename S::DsTile;
        store_packed<kConfig>(shared + S::kWeightsOffset, weights, first_row, first_query, lane);
        ptx::named_barrier_sync(1 + warp / kConfig.sharing, 32 * kConfig.sharing);
        const auto of = [&](int offset) {
          const uint32_t row =
              base + offset + first_row * DsTile::kPanelRowBytes + rows_first<DsTile>(lane);
          return [row, step](uint32_t(&a)[4], int i, int block) {
            ptx::ldmatrix_x4(a,
                             DsTile::template advance<2>(row, step * S::kStepQueries / 16 + block) +
                                 i * 16 * DsTile::kPanelRowBytes);
          };
        };
        multiply_rows<kConfig, Element>(dv, of(S::kWeightsOffset), d_o + columns, lane);
        multiply_rows<kConfig, Element>(dk, of(S::kDsOffset), q + columns, lane);
      }
    }
    __syncthreads();  // dS is complete, the tile has been read
    if (left > 1) {
      load_queries(place.work(left - 1));
      stats = load_stats(place.work(left - 1));
    }
    // Tested early, since the answer takes long; it is usually yes.
    bool has_come = true;
    if (lane == 0) has_come = find_turn<kConfig>(p, place, left, warp).has_come();
    float dq[2][S::Sums::kColumns][4];
    multiply_dq<kConfig, Element>(dq, base + S::kDsOffset, base, warp, lane);
    const Turn my_turn = find_turn<kConfig>(p, place, left, warp);
    while (!has_come) has_come = my_turn.has_come();
    __syncwarp();
    const int64_t number = dq_tile<kConfig>(p, place, left);
    add_dq<kConfig>(p.joint.dq_sums + number * S::Sums::kTileElements, my_turn.is_first(), dq, warp,
                    lane);
    turn_to_give = my_turn.count;
  }

  const int thread = ptx::thread_index(), warp = thread / 32, lane = thread % 32;
  const int first_row = kConfig.warp_keys() * (warp / kConfig.sharing);
  const int first_column = kWarpColumns * (warp % kConfig.sharing);
  give_turn(turn_to_give, lane);
  __syncthreads();  // rows are staged where keys and values were
  bool finite = true;
#pragma unroll
  for (int i = 0; i < S::kRowTiles; ++i) {
    const int row = first_row + 16 * i, used = entry.len_kv - task.first;
    finite = finite && all_finite(dk[i], row + lane / 4, used) &&
             all_finite(dv[i], row + lane / 4, used);
    float* const staging = reinterpret_cast<float*>(shared) + 16 * warp * kWarpColumns;
    store_sums<false>(p, task, p.dk, dk[i], p.softmax_scale, staging, row, lane, false,
                      first_column);
    store_sums<false>(p, task, p.dv, dv[i], 1, staging, row, lane, false, first_column);
  }
  if (!finite) atomicExch(p.joint.not_finite, 1ULL);
}

}  // namespace flashcore::cuda::backward_sm80::general
