// From the four partial results of a cluster to O and LSE, in one step.
//
// Each warp of each warpgroup has 16 rows x head_dim outputs over its own keys. They are cut into
// four chunks: rows + 0..7 or + 8..15, and the left or right half of the columns. Part p = rank + 2
// * group finishes the chunk of row half `group` and column half `rank`: it keeps that of its own,
// and gets the same of the three others, each already divided by its own sum, in 16 bits, with a
// log-sum-exp a row.
//
//   to the other warpgroup   through shared memory, and a named barrier of the two warps
//   to the other block       by st.async, counted at the receiver's barrier
//
// A block leaves only when all that is sent to it has come, so no barrier is needed at the end.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/attend.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_small_sm90 {

inline constexpr float kLn2 = 0.6931471805599453F;

// Where a lane stores: found before the keys have come, when there is time for it.
struct Places {
  uint16_t* o;  // of the first of the lane's outputs
  float* lse;   // null: the lane has none to store
  int query;    // counted in the entry
  int columns;  // of O from that output on; not more than 0 where nothing is stored
  bool in_use;  // a query that is in use
};

__device__ __forceinline__ Places find_places(const Params& p, const Task& task, int rank,
                                              int group, int warp, int lane, int chunk_columns) {
  Places at;
  at.query = task.first_query + 16 * warp + 8 * group + lane / 4;
  at.in_use = at.query < task.len_q;
  const bool exists = at.query < task.rows_q;
  const int column = rank * chunk_columns + 8 * (lane % 4);
  const int64_t row = task.q_row + at.query;
  at.columns = exists ? p.head_dim_v - column : 0;
  at.o = static_cast<uint16_t*>(p.o) +
         (task.batch * p.o_batch + task.head * p.o_head + row * p.o_row + column);
  at.lse = nullptr;
  if (p.lse != nullptr && rank == 0 && lane % 4 == 0 && exists) {
    at.lse = p.lse + (task.batch * p.lse_batch + task.head * p.lse_head + row * p.lse_row);
  }
  asm volatile("" : "+l"(at.o), "+l"(at.lse), "+r"(at.columns));  // here, and not later
  return at;
}

template <class S>
struct Merge {
  static constexpr int kPieces = S::kPieces;
  static constexpr int kChunkColumns = S::kHeadDim / 2, kChunkProducts = S::kOutProducts / 2;
  using Message = typename S::Message;

  typename S::Shared& smem;
  const Params& p;
  const Task& task;
  const Places& places;
  const int rank, group, warp, lane;

  float own[kChunkProducts][2];
  float own_lse;  // base 2, of the row that this lane finishes

  // Chunk (rows, columns) of this lane, divided by the sums.
  __device__ __forceinline__ void chunk_of(float (&chunk)[kChunkProducts][2], const Partial<S>& w,
                                           const float (&inverse)[2], bool rows,
                                           bool columns) const {
    const float factor = rows ? inverse[1] : inverse[0];
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float left = rows ? w.o[n][2 + e] : w.o[n][e];
        const float right = rows ? w.o[n + kChunkProducts][2 + e] : w.o[n + kChunkProducts][e];
        chunk[n][e] = (columns ? right : left) * factor;
      }
    }
  }

  __device__ __forceinline__ static void packed(uint32_t (&words)[4],
                                                const float (&chunk)[kChunkProducts][2],
                                                int piece) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      words[n] = S::Element::pack(chunk[4 * piece + n][0], chunk[4 * piece + n][1]);
    }
  }

  // Sends three chunks and keeps one.
  __device__ __forceinline__ void send(const Partial<S>& w, const float (&inverse)[2],
                                       const float (&lse)[2]) {
    const auto other_rank = static_cast<uint32_t>(rank ^ 1);
#pragma unroll
    for (int d = 3; d >= 0; --d) {  // those that travel furthest first
      const int to = group ^ (d & 1);
      const bool rows = to != 0, columns = (rank ^ (d >> 1)) != 0;
      const float row_lse = rows ? lse[1] : lse[0];
      float chunk[kChunkProducts][2];
      chunk_of(chunk, w, inverse, rows, columns);
      if (d == 0) {
#pragma unroll
        for (int i = 0; i < 2 * kChunkProducts; ++i) own[i / 2][i % 2] = chunk[i / 2][i % 2];
        own_lse = row_lse;
      } else if (d == 1) {
        Message& message = smem.local[to][warp];
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          uint32_t words[4];
          packed(words, chunk, piece);
          *reinterpret_cast<uint4*>(message.outputs[piece][lane]) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
        if (lane % 4 == 0) message.lse[lane / 4] = row_lse;
      } else {
        const Message& message = smem.remote[to][group][warp];
        const uint32_t barrier =
            ptx::cluster_address(ptx::shared_address(&smem.messages[to]), other_rank);
        const uint32_t there = ptx::cluster_address(ptx::shared_address(&message), other_rank);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          uint32_t words[4];
          packed(words, chunk, piece);
          ptx::store_async(there + static_cast<uint32_t>((32 * piece + lane) * 16), words, barrier);
        }
        if (lane % 4 == 0) {
          ptx::store_async(there + static_cast<uint32_t>(512 * kPieces + lane),
                           __float_as_uint(row_lse), barrier);
        }
      }
    }
  }

  // Waits for what the three others sent, and adds it: own[] becomes the outputs.
  __device__ __forceinline__ float receive() {
    ptx::named_barrier_sync(kExchange + warp, 2 * 32);
    ptx::mbarrier_wait_cluster(ptx::shared_address(&smem.messages[group]), 0);
    const Message* const messages[3] = {&smem.local[group][warp], &smem.remote[group][0][warp],
                                        &smem.remote[group][1][warp]};
    float lse[3];
    uint4 words[3][kPieces];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      lse[i] = messages[i]->lse[lane / 4];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        words[i][piece] = *reinterpret_cast<const uint4*>(messages[i]->outputs[piece][lane]);
      }
    }
    const float largest = fmaxf(fmaxf(own_lse, lse[0]), fmaxf(lse[1], lse[2]));
    const float reference = attention::finite_reference(largest);
    float weight = ptx::exp2_approx(own_lse - reference), weights[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) weights[i] = ptx::exp2_approx(lse[i] - reference);
    const float sum = (weight + weights[0]) + (weights[1] + weights[2]);
    const float inverse = sum == 0 ? 0.0F : __fdividef(1.0F, sum);
    weight *= inverse;
#pragma unroll
    for (int i = 0; i < 3; ++i) weights[i] *= inverse;
#pragma unroll
    for (int n = 0; n < kChunkProducts; ++n) {
      own[n][0] *= weight;
      own[n][1] *= weight;
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const uint4& four = words[i][n / 4];
        const uint32_t word = n % 4 == 0   ? four.x
                              : n % 4 == 1 ? four.y
                              : n % 4 == 2 ? four.z
                                           : four.w;
        own[n][0] = fmaf(S::Element::to_float(word & 0xffffU), weights[i], own[n][0]);
        own[n][1] = fmaf(S::Element::to_float(word >> 16), weights[i], own[n][1]);
      }
    }
    return sum == 0 ? kNoKey : (reference + __log2f(sum)) * kLn2;
  }

  // Eight neighbouring outputs of this lane's row: the four lanes of a quad exchange pairs.
  __device__ __forceinline__ uint4 row_piece(const uint32_t (&h)[4]) const {
    const int q = lane & 3;
    uint32_t x = (q & 1) != 0 ? h[0] : h[1], y = (q & 1) != 0 ? h[2] : h[3];
    x = __shfl_xor_sync(0xffffffffU, x, 1);
    y = __shfl_xor_sync(0xffffffffU, y, 1);
    const uint32_t b0 = (q & 1) != 0 ? x : h[0], b1 = (q & 1) != 0 ? h[1] : x;
    const uint32_t b2 = (q & 1) != 0 ? y : h[2], b3 = (q & 1) != 0 ? h[3] : y;
    uint32_t z = (q & 2) != 0 ? b0 : b2, v = (q & 2) != 0 ? b1 : b3;
    z = __shfl_xor_sync(0xffffffffU, z, 2);
    v = __shfl_xor_sync(0xffffffffU, v, 2);
    return (q & 2) != 0 ? make_uint4(z, v, b2, b3) : make_uint4(b0, b1, z, v);
  }

  __device__ __forceinline__ void store(float lse) {
    float zero = 0;  // NaN as soon as one output is not finite
#pragma unroll
    for (int i = 0; i < 2 * kChunkProducts; ++i) zero = fmaf(own[i / 2][i % 2], 0.0F, zero);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      uint32_t words[4];
      packed(words, own, piece);
      uint4 eight = row_piece(words);
      if (!places.in_use) eight = make_uint4(0, 0, 0, 0);
      if (places.columns > 32 * piece) {
        *reinterpret_cast<uint4*>(places.o + 32 * piece) = eight;
      }
    }
    if (places.lse != nullptr) *places.lse = places.in_use ? lse : kNoKey;
    const uint32_t lanes = __ballot_sync(0xffffffffU, places.in_use && zero != 0);
    if (lanes != 0) [[unlikely]] {
      __syncwarp();  // what was stored is stored again
      store_exactly<typename S::Element, !S::kWhole, 4>(
          p, lanes, task.first_query + 16 * warp + 8 * group, rank * kChunkColumns, kPieces);
    }
  }

  __device__ __forceinline__ void run(const Partial<S>& w, const float (&inverse)[2],
                                      const float (&lse)[2]) {
    send(w, inverse, lse);
    store(receive());
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
