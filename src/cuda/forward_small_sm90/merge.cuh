// From the partial results of a cluster to O and LSE.
//
// Each warp of each warpgroup has 16 rows x head_dim outputs over its own keys, not divided by
// anything. They are cut into chunks: rows + 0..7 or + 8..15, and in a cluster of two blocks the
// left or right half of the columns. Warpgroup `group` of block `rank` finishes the chunk of row
// half `group` and column half `rank`:
//
//   while the last product runs   maximum and sum of each row to who finishes it: all weights known
//   within the block              the warpgroups swap row halves and add up: half of the numbers
//   to the other block            its half of the columns, by st.async, to be added to its own
//
// All in fp32, lane for lane, weighted on the way. What the other block waits for goes first. A
// block leaves only when all that is sent to it has come, so no barrier is needed at the end.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/attend.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/shares.cuh"
#include "cuda/forward_small_sm90/transpose.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/cluster_store_pair.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/store_shared.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_small_sm90 {

// Where a lane stores: found before the keys have come, when there is time for it.
struct Places {
  uint16_t* o;               // of the first of the lane's outputs
  float* lse;                // null: the lane has none to store
  int query;                 // counted in the entry
  int columns;               // of O from that output on; not more than 0 where nothing is stored
  bool in_use;               // a query that is in use
  uint32_t high, low;        // and what comes from there for the lane's outputs
  uint32_t remote, remote_low, counted;  // where this lane's outputs go in the other block, and their barrier
  uint32_t here, there;  // what the other warpgroup of the block left for this lane, and gets
  uint32_t row, remote_row, row_counted;  // the same of what a lane says of a row
};

// Where what a lane sent lies. Eight lanes of 16 bytes, which go over together, lie together; and a
// reader of a word of each lane of a quad, one lane after the other, finds eight rows in eight
// different groups of banks.
__device__ __forceinline__ int slot_of(int row, int quarter) {
  return 4 * (row & 6) + ((2 * quarter + row % 2) ^ (row & 6));
}

template <class S>
__device__ __forceinline__ Places find_places(const typename S::Shared& smem, const Params& p,
                                              const Task& task, int rank, int group, int warp,
                                              int lane) {
  Places at;
  at.query = task.first_query + 16 * warp + 8 * group + lane / 4;
  at.in_use = at.query < task.len_q;
  const bool exists = at.query < task.rows_q;
  const int column = rank * S::kStoredColumns + 8 * (lane % 4);
  const int64_t row = task.q_row + at.query;
  at.columns = exists ? p.head_dim_v - column : 0;
  at.o = static_cast<uint16_t*>(p.o) +
         (task.batch * p.o_batch + task.head * p.o_head + row * p.o_row + column);
  at.lse = nullptr;
  if (p.lse != nullptr && rank == 0 && lane % 4 == 0 && exists) {
    at.lse = p.lse + (task.batch * p.lse_batch + task.head * p.lse_head + row * p.lse_row);
  }
  // Lane q < 2 of a quad speaks for row half q.
  at.row = ptx::shared_address(&smem.rows[lane % 2][warp][group][lane / 4]);
  at.here = ptx::shared_address(&smem.swaps[0][group][warp][0][lane]);
  at.there = ptx::shared_address(&smem.swaps[0][group ^ 1][warp][0][lane]);
  asm volatile("" : "+r"(at.row), "+r"(at.here), "+r"(at.there));
  if constexpr (S::kRanks > 1) {
    const auto other = static_cast<uint32_t>(rank ^ 1);
    const auto& chunk = smem.chunks[group][warp];
    at.high = ptx::shared_address(&chunk.high[0][slot_of(lane / 4, 0)][lane % 4]);
    at.low = ptx::shared_address(&chunk.low[slot_of(lane / 4, 0)][0][lane % 4]);
    if constexpr (S::kConfig.blocks == 1) asm volatile("" : "+r"(at.high), "+r"(at.low));
    at.remote = ptx::cluster_address(ptx::shared_address(&chunk.high[0][slot_of(lane / 4, lane % 4)]), other);
    at.remote_low = ptx::cluster_address(ptx::shared_address(&chunk.low[slot_of(lane / 4, lane % 4)]), other);
    at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[group][warp]), other);
    at.remote_row = ptx::cluster_address(
        ptx::shared_address(&smem.block_rows[group][warp][lane / 4]), other);
    at.row_counted = ptx::cluster_address(ptx::shared_address(&smem.rows_received[group]), other);
    asm volatile("" : "+r"(at.remote), "+r"(at.remote_low), "+r"(at.remote_row), "+r"(at.counted), "+r"(at.row_counted));
  }
  asm volatile("" : "+l"(at.o), "+l"(at.lse), "+r"(at.columns));  // here, and not later
  return at;
}

template <class S>
struct Merge {
  static constexpr int kPieces = S::kPieces;
  static constexpr int kChunkProducts = S::kOutProducts / S::kRanks;
  using Chunk = float[kChunkProducts][2];  // what a lane has of a row

  typename S::Shared& smem;
  const Params& p;
  const Task& task;
  const Places& places;
  const int rank, group, warp, lane;

  float own, other;  // what the two warpgroups' outputs are multiplied by
  float2 block;      // maximum (scaled, of 2) and sum, relative to it, of this lane's row in the block
  uint32_t words[kPieces][4];  // of O: a lane finishes eight neighbouring columns of each piece
  bool finite;

  // What a row has in all, given the maxima and sums of two shares, and how much each counts.
  struct Joined {
    float2 row;
    float first, second;
  };
  __device__ __forceinline__ static Joined join(float2 a, float2 b) {
    Joined joined;
    joined.row.x = fmaxf(a.x, b.x);
    const float reference = attention::finite_reference(joined.row.x);
    joined.first = ptx::exp2_approx(a.x - reference);
    joined.second = ptx::exp2_approx(b.x - reference);
    joined.row.y = fmaf(a.y, joined.first, b.y * joined.second);
    return joined;
  }

  // Maximum and sum of each row, which are known before the outputs, to the warps that finish it.
  __device__ __forceinline__ void announce(const float (&max)[2], const float (&sums)[2]) {
    const bool lower = lane % 2 == 0;
    if (lane % 4 < 2) {
      ptx::store_shared_x2(places.row, {__float_as_uint(lower ? max[0] : max[1]),
                                        __float_as_uint(lower ? sums[0] : sums[1])});
    }
    __syncwarp();
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
    const float2(&rows)[kGroups][8] = smem.rows[group][warp];
    const Joined joined = join(rows[group][lane / 4], rows[group ^ 1][lane / 4]);
    block = joined.row;
    own = joined.first;
    other = joined.second;
    if constexpr (S::kRanks == 1) {
      const float inverse = finish_row(block);
      own *= inverse;
      other *= inverse;
    } else {
      if (lane % 4 == 0) {
        ptx::store_async(places.remote_row, {__float_as_uint(block.x), __float_as_uint(block.y)},
                         places.row_counted);
      }
      __syncwarp();
    }
  }

  // Stores a row's LSE; what its outputs are to be multiplied by.
  __device__ __forceinline__ float finish_row(float2 row) const {
    if (places.lse != nullptr) {
      const float reference = attention::finite_reference(row.x);
      *places.lse =
          places.in_use && row.y != 0 ? (reference + ptx::log2_approx(row.y)) * kLn2 : kNoKey;
    }
    return row.y == 0 ? 0.0F : ptx::reciprocal_approx(row.y);
  }

  // What the warpgroups of the block have of the columns of half `columns` together, of the row
  // half that this one finishes, kRow.
  template <int kRow>
  __device__ __forceinline__ void add_up(Chunk& sum, const Partial<S>& w, int columns) const {
    const int product = columns * kChunkProducts;
    constexpr uint32_t kHalf = sizeof(smem.swaps[0]);
    const uint32_t there = places.there + columns * kHalf, here = places.here + columns * kHalf;
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
      const float* const two = &w.o[product + n][2 * (kRow ^ 1)];
      ptx::store_shared_x2(there + 256 * n, {__float_as_uint(two[0]), __float_as_uint(two[1])});
    }
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
      const float* const two = &w.o[product + n][2 * kRow];
      const float2 its = ptx::load_shared_x2(here + 256 * n);
      sum[n][0] = fmaf(its.x, other, two[0] * own);
      sum[n][1] = fmaf(its.y, other, two[1] * own);
    }
  }

  // In 24 bits: the upper halves of a product's two columns in a word, and a byte of each.
  __device__ __forceinline__ void send(const Chunk& sum) const {
    uint32_t low[2 * kPieces];
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      uint32_t high[4], middle[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t a = __float_as_uint(sum[4 * piece + n][0]);
        const uint32_t b = __float_as_uint(sum[4 * piece + n][1]);
        high[n] = __byte_perm(a, b, 0x7632);
        middle[n] = __byte_perm(a, b, 0x0051);
      }
      ptx::store_async(places.remote + 512 * piece, high, places.counted);
      low[2 * piece] = __byte_perm(middle[0], middle[1], 0x5410);
      low[2 * piece + 1] = __byte_perm(middle[2], middle[3], 0x5410);
    }
    ptx::store_async(places.remote_low, low, places.counted);
  }

  // Alone: all columns of the row half.
  template <int kRow>
  __device__ __forceinline__ void finish(const Partial<S>& w) {
    Chunk sum;
    add_up<kRow>(sum, w, 0);
    float total = 0;  // not finite as soon as one output is not
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float(&two)[2] = sum[4 * piece + n];
        total += two[0] + two[1];
        words[piece][n] = S::Element::pack(two[0], two[1]);
      }
      transpose_quads(words[piece], lane);
    }
    finite = isfinite(total);
  }

  // In a cluster: of half kColumns, and the other half goes over.
  template <int kRow, int kColumns>
  __device__ __forceinline__ void finish(const Partial<S>& w) {
    Chunk sum;
    add_up<kRow>(sum, w, kColumns ^ 1);
    send(sum);
    add_up<kRow>(sum, w, kColumns);
    // Eight neighbouring columns, while the others are on their way.
    uint32_t even[kPieces][4], odd[kPieces][4];
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        even[piece][n] = __float_as_uint(sum[4 * piece + n][0]);
        odd[piece][n] = __float_as_uint(sum[4 * piece + n][1]);
      }
      transpose_quads(even[piece], lane);
      transpose_quads(odd[piece], lane);
    }
    ptx::mbarrier_wait(ptx::shared_address(&smem.rows_received[group]), 0);
    const Joined joined = join(block, smem.block_rows[group][warp][lane / 4]);
    const float inverse = finish_row(joined.row);
    float ours = joined.first * inverse, theirs = joined.second * inverse;
    asm volatile("" : "+f"(ours), "+f"(theirs));  // before the wait
    ptx::mbarrier_wait(ptx::shared_address(&smem.received[group][warp]), 0);
    float total = 0;  // not finite as soon as one output is not
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        // Of lane n of the quad.
        const uint32_t high = ptx::load_shared((places.high ^ 32 * n) + 512 * piece);
        const uint32_t low = ptx::load_shared_u16((places.low ^ 16 * kPieces * n) + 8 * piece);
        const float a = __uint_as_float(__byte_perm(high, low, 0x1046)) * theirs;
        const float b = __uint_as_float(__byte_perm(high, low, 0x3256)) * theirs;
        even[piece][n] = __float_as_uint(fmaf(__uint_as_float(even[piece][n]), ours, a));
        odd[piece][n] = __float_as_uint(fmaf(__uint_as_float(odd[piece][n]), ours, b));
        words[piece][n] =
            S::Element::pack(__uint_as_float(even[piece][n]), __uint_as_float(odd[piece][n]));
        total += __uint_as_float(even[piece][n]) + __uint_as_float(odd[piece][n]);
      }
    }
    finite = isfinite(total);
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t(&four)[4] = words[piece];
      uint4 eight = make_uint4(four[0], four[1], four[2], four[3]);
      if (!places.in_use) eight = make_uint4(0, 0, 0, 0);
      if (places.columns > 32 * piece) {
        *reinterpret_cast<uint4*>(places.o + 32 * piece) = eight;
      }
    }
    const uint32_t lanes = __ballot_sync(0xffffffffU, places.in_use && !finite);
    if (lanes != 0) [[unlikely]] {
      __syncwarp();  // what was stored is stored again
      store_exactly<typename S::Element, S::kCover == Cover::any, 4>(
          p, lanes, task.first_query + 16 * warp + 8 * group, rank * S::kStoredColumns, kPieces);
    }
  }

  // Which half of its registers a warp keeps is a branch and not a selection.
  __device__ __forceinline__ void run(const Partial<S>& w) {
    if constexpr (S::kRanks == 1) {
      if (group == 0) {
        finish<0>(w);
      } else {
        finish<1>(w);
      }
    } else {
      if (group == 0) {
        if (rank == 0) {
          finish<0, 0>(w);
        } else {
          finish<0, 1>(w);
        }
      } else {
        if (rank == 0) {
          finish<1, 0>(w);
        } else {
          finish<1, 1>(w);
        }
      }
    }
    store();
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
