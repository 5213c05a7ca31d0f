// From the partial results of a cluster to O and LSE, in one step.
//
// Each warp of each warpgroup has 16 rows x head_dim outputs over its own keys. They are cut into
// chunks, one for each part: rows + 0..7 or + 8..15, and in a cluster of two blocks the left or
// right half of the columns. Warpgroup `group` of block `rank` finishes the chunk of row half
// `group` and column half `rank`: from every part, its own included, it gets that chunk, already
// divided by the part's own sum, in 16 or 32 bits, with a log-sum-exp a row. What fp16 cannot hold
// becomes infinite, and the rows are computed exactly.
//
//   within the block     through shared memory, and a named barrier of the two warps
//   to the other block   by st.async, counted at a barrier of the receiving warp alone
//
// Which chunk goes where is an address; what is in it is fixed. A block leaves only when all that
// is sent to it has come, so no barrier is needed at the end.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/attend.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/shares.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/cluster_store.cuh"
#include "cuda/ptx/convert.cuh"
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
  uint32_t local;            // where this lane's outputs go in the own block
  uint32_t remote, counted;  // and in the other, and their barrier
  uint32_t remote_lse, lse_counted;  // the same of log-sum-exps
};

// Where 16 bytes of lane 4 * r + q lie in a message: a reader of one word of each such piece finds
// eight rows in eight different groups of banks.
__device__ __forceinline__ int slot_of(int lane) { return lane / 4 + 8 * (lane % 4); }

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
  at.local = ptx::shared_address(
      &smem.messages[0][warp][S::part_of(rank, group)].outputs[0][slot_of(lane)]);
  asm volatile("" : "+r"(at.local));
  if constexpr (S::kRanks > 1) {
    const auto other = static_cast<uint32_t>(rank ^ 1);
    at.remote = ptx::cluster_address(at.local, other);
    at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[0][warp]), other);
    at.remote_lse = at.remote + static_cast<uint32_t>(512 * S::kPieces * S::kVectors + 4 * lane -
                                                      16 * slot_of(lane));
    at.lse_counted = ptx::cluster_address(ptx::shared_address(&smem.lse_received[0]), other);
    asm volatile("" : "+r"(at.remote), "+r"(at.remote_lse), "+r"(at.counted), "+r"(at.lse_counted));
  }
  asm volatile("" : "+l"(at.o), "+l"(at.lse), "+r"(at.columns));  // here, and not later
  return at;
}

template <class S>
struct Merge {
  static constexpr int kPieces = S::kPieces;
  static constexpr int kParts = S::kParts, kChunkProducts = S::kOutProducts / S::kRanks;
  using Message = typename S::Message;

  typename S::Shared& smem;
  const Params& p;
  const Task& task;
  const Places& places;
  const int rank, group, warp, lane;

  // A lane finishes eight neighbouring columns of a row in each piece of 32.
  float outputs[kPieces][8];

  // The log-sum-exps of each chunk to the warp that finishes it: before the last product is
  // complete, so that what they are needed for is done while the outputs are on their way.
  __device__ __forceinline__ void announce(const float (&lse)[2]) const {
    constexpr uint32_t kRowHalf = kGroupWarps * kParts * sizeof(Message);
    const int part = S::part_of(rank, group);
#pragma unroll
    for (int rows = 0; rows < 2; ++rows) {
      smem.messages[rows][warp][part].lse[lane] = lse[rows];
      if (S::kRanks > 1) {
        ptx::store_async(places.remote_lse + rows * kRowHalf, __float_as_uint(lse[rows]),
                         places.lse_counted + rows * 8);
      }
    }
  }

  // One vector: a row's outputs of four products from `product` on, or of two.
  __device__ __forceinline__ static void fill(uint32_t (&words)[4], const Partial<S>& w,
                                              int product, int row, float inverse) {
#pragma unroll
    for (int n = 0; n < 4 / S::kVectors; ++n) {
      const float* const two = &w.o[product + n][2 * row];
      if constexpr (S::kVectors == 1) {
        words[n] = ptx::pack_f16x2(two[0] * inverse, two[1] * inverse);
      } else {
        words[2 * n] = __float_as_uint(two[0] * inverse);
        words[2 * n + 1] = __float_as_uint(two[1] * inverse);
      }
    }
  }

  // Each chunk to the warp that finishes it.
  __device__ __forceinline__ void send(const Partial<S>& w, const float (&inverse)[2]) const {
    constexpr uint32_t kRowHalf = kGroupWarps * kParts * sizeof(Message);
#pragma unroll
    for (int to = 0; to < kParts; ++to) {
      const int columns = to / 2, rows = to % 2;
      const bool stays = columns == rank;
#pragma unroll
      for (int vector = 0; vector < kPieces * S::kVectors; ++vector) {
        uint32_t words[4];
        fill(words, w, columns * kChunkProducts + 4 / S::kVectors * vector, rows, inverse[rows]);
        const uint32_t here = places.local + rows * kRowHalf + 512 * vector;
        if constexpr (S::kRanks == 1) {
          ptx::store_shared_x4(here, words);
        } else {
          ptx::store_here_or_async(stays, here, words,
                                   places.remote + rows * kRowHalf + 512 * vector,
                                   places.counted + rows * kGroupWarps * 8);
        }
      }
    }
  }

  // Two columns of product `quarter` of a piece, from the lane at slot `slot`.
  __device__ __forceinline__ static float2 share(const Message& message, int piece, int slot,
                                                 int quarter) {
    if constexpr (S::kVectors == 1) {
      const uint32_t word = message.outputs[piece][slot][quarter];
      return {ptx::f16_to_float(static_cast<uint16_t>(word)),
              ptx::f16_to_float(static_cast<uint16_t>(word >> 16))};
    } else {
      return *reinterpret_cast<const float2*>(
          &message.outputs[2 * piece + quarter / 2][slot][quarter % 2 * 2]);
    }
  }

  // Waits for all parts' shares, and adds them; LSE.
  __device__ __forceinline__ float receive() {
    const int row = lane / 4, quarter = lane % 4;
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
    if (S::kRanks > 1) ptx::mbarrier_wait(ptx::shared_address(&smem.lse_received[group]), 0);
    const Message(&messages)[kParts] = smem.messages[group][warp];
    float weights[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) weights[i] = messages[i].lse[lane];
    float largest = fmaxf(weights[0], weights[1]);
    if (kParts > 2) largest = fmaxf(largest, fmaxf(weights[kParts - 2], weights[kParts - 1]));
    const float reference = attention::finite_reference(largest);
#pragma unroll
    for (int i = 0; i < kParts; ++i) weights[i] = ptx::exp2_approx(weights[i] - reference);
    float sum = weights[0] + weights[1];
    if (kParts > 2) sum += weights[kParts - 2] + weights[kParts - 1];
    const float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
#pragma unroll
    for (int i = 0; i < kParts; ++i) weights[i] *= inverse;
    if (S::kRanks > 1) ptx::mbarrier_wait(ptx::shared_address(&smem.received[group][warp]), 0);
    float2 shares[kParts][4 * kPieces];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
#pragma unroll
      for (int n = 0; n < 4 * kPieces; ++n) {
        shares[i][n] = share(messages[i], n / 4, row + 8 * (n % 4), quarter);
      }
    }
#pragma unroll
    for (int n = 0; n < 4 * kPieces; ++n) {
      float* const two = &outputs[n / 4][n % 4 * 2];
      two[0] = two[1] = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        two[0] = fmaf(shares[i][n].x, weights[i], two[0]);
        two[1] = fmaf(shares[i][n].y, weights[i], two[1]);
      }
    }
    return sum == 0 ? kNoKey : (reference + ptx::log2_approx(sum)) * kLn2;
  }

  __device__ __forceinline__ void store(float lse) {
    float total = 0;  // not finite as soon as one output is not
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float(&x)[8] = outputs[piece];
      total += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
      uint4 eight = make_uint4(S::Element::pack(x[0], x[1]), S::Element::pack(x[2], x[3]),
                               S::Element::pack(x[4], x[5]), S::Element::pack(x[6], x[7]));
      if (!places.in_use) eight = make_uint4(0, 0, 0, 0);
      if (places.columns > 32 * piece) {
        *reinterpret_cast<uint4*>(places.o + 32 * piece) = eight;
      }
    }
    if (places.lse != nullptr) *places.lse = places.in_use ? lse : kNoKey;
    const uint32_t lanes = __ballot_sync(0xffffffffU, places.in_use && !isfinite(total));
    if (lanes != 0) [[unlikely]] {
      __syncwarp();  // what was stored is stored again
      store_exactly<typename S::Element, !S::kWhole, 4>(
          p, lanes, task.first_query + 16 * warp + 8 * group, rank * S::kStoredColumns, kPieces);
    }
  }

  __device__ __forceinline__ void run(const Partial<S>& w, const float (&inverse)[2]) {
    send(w, inverse);
    store(receive());
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
