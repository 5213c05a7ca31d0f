// Merges the partial results of a cluster into O and LSE, in fp32:
// first within each block, then between the blocks of the cluster.
//
// Each warp of each warpgroup has 16 rows x head_dim outputs over its own keys, not
// yet normalised. They are divided into chunks: rows + 0..7 or + 8..15 and, in a
// cluster of two blocks, the left or right half of the columns. Warpgroup `group`
// of block `rank` finishes the chunk of row half `group` and column half `rank`:
//
//   while the last product runs   maximum and sum of each row, to the warpgroup that finishes it
//   within the block              the warpgroups swap row halves and add up: half of the numbers
//   to the other block            its half of the columns, by st.async
//
// Each lane exchanges with the same lane, and weights its values before. Data for the other block is sent
// first. A block exits only after all data sent to it has arrived, so no barrier is needed at the end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/large_reference.hpp"
#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/forward_sm90/latency/merge_store.cuh"
#include "cuda/forward_sm90/latency/transpose.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::forward_sm90::latency {

template <class S>
struct Merge : MergeBase<S> {
  using Base = MergeBase<S>;
  using Base::finite, Base::group, Base::kPieces, Base::lane, Base::places, Base::rank;
  using Base::smem, Base::warp, Base::words;
  static constexpr int kChunkProducts = S::kOutProducts / S::kRanks;
  using Chunk = float[kChunkProducts][2];  // a lane's values of a row
  static constexpr uint32_t kSwapHalf = sizeof(S::MergeMemory::swaps[0]);

  // Addresses, computed early.
  struct Ways {
    uint32_t here, there;  // `here`: the other warpgroup's message to this lane; `there`: its reply
    uint32_t row;          // this lane's message about a row
    uint32_t inbox;        // the other block's message for the lane's outputs
    uint32_t remote, counted, remote_row, row_counted;  // in the other block, and their barriers
  };
  __device__ __forceinline__ static Ways find_ways(const typename S::Shared& smem, int rank,
                                                   int group, int warp, int lane) {
    Ways at;
    const auto& memory = smem.merge;
    at.here = ptx::shared_address(&memory.swaps[0][group][warp][0][lane]);
    at.there = ptx::shared_address(&memory.swaps[0][group ^ 1][warp][0][lane]);
    // Lane q < 2 of a quad sends row half q.
    at.row = ptx::shared_address(&memory.rows[lane % 2][warp][group][lane / 4]);
    ptx::pin(at.row, at.here, at.there);
    if constexpr (S::kRanks > 1) {
      const auto other = static_cast<uint32_t>(rank ^ 1);
      const int row = lane / 4, quarter = lane % 4;
      const uint32_t inbox = ptx::shared_address(&memory.chunks[group][warp][0][0][0]);
      // Vector i of a lane has products 2 * i and 2 * i + 1; every other vector
      // is shifted by four slots, so that reads of both do not conflict.
      at.inbox = inbox + static_cast<uint32_t>(512 * (quarter / 2) + 8 * (quarter % 2) +
                                               16 * (slot_of(row, 0) ^ 4 * (quarter / 2)));
      at.remote =
          ptx::cluster_address(inbox + static_cast<uint32_t>(16 * slot_of(row, quarter)), other);
      at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[group][warp]), other);
      at.remote_row =
          ptx::cluster_address(ptx::shared_address(&memory.block_rows[group][warp][row]), other);
      at.row_counted = ptx::cluster_address(ptx::shared_address(&smem.rows_received[group]), other);
      if constexpr (S::kConfig.blocks == 1) ptx::pin(at.inbox);
      ptx::pin(at.remote, at.remote_row, at.counted, at.row_counted);
    }
    return at;
  }
  const Ways& ways;

  // A row's total from the maxima (scaled, in units of log2)
  // and sums of two partial results, and the weight of each.
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
  float own, other;  // the weights of the two warpgroups' outputs
  float2 block;      // maximum and sum of this lane's row in the block

  // Stores a row's LSE. Returns the factor of its outputs: infinity if the
  // reference is too large, so that they are not finite and are recomputed.
  __device__ __forceinline__ float finish_row(float2 row) const {
    const float reference = attention::finite_reference(row.x);
    if (places.lse != nullptr) {
      this->store_lse(row.y == 0 ? kNoKey : (reference + ptx::log2_approx(row.y)) * kLn2);
    }
    const float inverse = row.y == 0 ? 0.0F : ptx::reciprocal_approx(row.y);
    return fabsf(reference) > attention::kLargestReference ? -kNoKey : inverse;
  }

  // Sends the rows' maxima and sums before the last product is complete.
  __device__ __forceinline__ void announce(const Partial<S>& w, float scale) {
    float max[2], sums[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      max[row] = attention::scaled_max(w.max[row], scale);
      sums[row] = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
    }
    const bool lower = lane % 2 == 0;
    if (lane % 4 < 2) {
      ptx::store_shared_x2(ways.row, {__float_as_uint(lower ? max[0] : max[1]),
                                      __float_as_uint(lower ? sums[0] : sums[1])});
    }
    __syncwarp();
    this->meet();
    const float2(&rows)[kGroups][8] = smem.merge.rows[group][warp];
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
        ptx::store_async(ways.remote_row, {__float_as_uint(block.x), __float_as_uint(block.y)},
                         ways.row_counted);
      }
      __syncwarp();
    }
  }

  // Called by the warpgroup that finishes row half kRow. Sends its values of the
  // other row half, columns of half `columns`, to the block's other warpgroup.
  template <int kRow>
  __device__ __forceinline__ void leave(const Partial<S>& w, int columns) const {
    const uint32_t there = ways.there + columns * kSwapHalf;
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
      const float* const two = &w.o[columns * kChunkProducts + n][2 * (kRow ^ 1)];
      ptx::store_shared_x2(there + 256 * n, {__float_as_uint(two[0]), __float_as_uint(two[1])});
    }
  }
  // Adds up both warpgroups' values of the row half that this one finishes.
  template <int kRow>
  __device__ __forceinline__ void add_up(Chunk& sum, const Partial<S>& w, int columns) const {
    const uint32_t here = ways.here + columns * kSwapHalf;
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
      const float* const two = &w.o[columns * kChunkProducts + n][2 * kRow];
      const float2 its = ptx::load_shared_x2(here + 256 * n);
      sum[n][0] = fmaf(its.x, other, two[0] * own);
      sum[n][1] = fmaf(its.y, other, two[1] * own);
    }
  }

  __device__ __forceinline__ void send(const Chunk& sum) const {
#pragma unroll
    for (int i = 0; i < kChunkProducts / 2; ++i) {
      const uint32_t four[4] = {__float_as_uint(sum[2 * i][0]), __float_as_uint(sum[2 * i][1]),
                                __float_as_uint(sum[2 * i + 1][0]),
                                __float_as_uint(sum[2 * i + 1][1])};
      ptx::store_async((ways.remote ^ 64 * (i % 2)) + 512 * i, four, ways.counted);
    }
  }

  // A warp branches to decide which half of its registers to keep: the row half
  // and the column half that it finishes. All warps meet at the same instructions.
  template <class Step>
  __device__ __forceinline__ void by_halves(const Step& step) const {
    using First = std::integral_constant<int, 0>;
    using Second = std::integral_constant<int, 1>;
    if (group == 0) {
      if (rank == 0) {
        step(First{}, First{});
      } else {
        step(First{}, Second{});
      }
    } else {
      if (rank == 0) {
        step(Second{}, First{});
      } else {
        step(Second{}, Second{});
      }
    }
  }

  // In a cluster of one block: finishes all columns of the row half.
  __device__ __forceinline__ void finish_alone(const Partial<S>& w) {
    Chunk sum;
    by_halves([&](auto row, auto) { leave<row.value>(w, 0); });
    this->meet();
    by_halves([&](auto row, auto) { add_up<row.value>(sum, w, 0); });
    float total = 0;  // not finite once one output is not finite
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

  // In a cluster of two blocks: sends the column half that the other block finishes.
  __device__ __forceinline__ void finish(const Partial<S>& w) {
    Chunk sum;
    by_halves([&](auto row, auto columns) { leave<row.value>(w, columns.value ^ 1); });
    this->meet();
    by_halves([&](auto row, auto columns) {
      add_up<row.value>(sum, w, columns.value ^ 1);
      send(sum);
      leave<row.value>(w, columns.value);
    });
    this->meet();
    by_halves([&](auto row, auto columns) { add_up<row.value>(sum, w, columns.value); });
    // Gathers eight neighbouring columns while the other block's values are in flight.
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
    this->wait_for_rows();
    const Joined joined = join(block, smem.merge.block_rows[group][warp][lane / 4]);
    const float inverse = finish_row(joined.row);
    const float ours = joined.first * inverse, theirs = joined.second * inverse;
    this->wait_for_outputs();
    float total = 0;  // not finite once one output is not finite
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {  // lane n of the quad
        const float2 its = ptx::load_shared_x2((ways.inbox ^ 32 * n) + 1024 * piece);
        const float a = fmaf(__uint_as_float(even[piece][n]), ours, its.x * theirs);
        const float b = fmaf(__uint_as_float(odd[piece][n]), ours, its.y * theirs);
        words[piece][n] = S::Element::pack(a, b);
        total += a + b;
      }
    }
    finite = isfinite(total);
  }

  __device__ __forceinline__ void run(const Partial<S>& w) {
    if constexpr (S::kRanks == 1) {
      finish_alone(w);
    } else {
      finish(w);
    }
    this->store();
  }
};

}  // namespace flashcore::cuda::forward_sm90::latency
