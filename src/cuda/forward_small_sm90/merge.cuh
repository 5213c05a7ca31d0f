// From the partial results of a cluster's warpgroups to O and LSE.
//
//   each warp      16 rows x head_dim, over its own keys
//   in the block   warp w of a warpgroup finishes eight of the rows, w of the other the rest
//   in the cluster each block finishes half of the columns; by st.async, counted at a barrier of
//                  the receiving warp alone
//
// What is exchanged is already divided by the sum of what it is part of, in 16 bits. How much each
// part of a block counts is known before the last product is complete. A block leaves only when all
// that is sent to it has come, so no barrier is needed at the end.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/shares.cuh"
#include "cuda/forward_small_sm90/softmax.cuh"
#include "cuda/forward_small_sm90/transpose.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::forward_small_sm90 {

// Where a lane stores: found before the keys have come, when there is time for it.
struct Places {
  uint16_t* o;  // of the first of the lane's outputs
  float* lse;   // null: the lane has none to store
  int query;    // counted in the entry
  int columns;  // of O from that output on; not more than 0 where nothing is stored
  bool in_use;  // a query that is in use
  uint32_t remote, remote_lse, counted;  // in the other block: where outputs go, and their barrier
};

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
  if constexpr (S::kRanks > 1) {
    const auto other = static_cast<uint32_t>(rank ^ 1);
    const auto& message = smem.messages[group][warp];
    at.remote = ptx::cluster_address(ptx::shared_address(&message.outputs[0][lane][0]), other);
    at.remote_lse = ptx::cluster_address(ptx::shared_address(&message.lse[lane]), other);
    at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[group][warp]), other);
    asm volatile("" : "+r"(at.remote), "+r"(at.remote_lse), "+r"(at.counted));
  }
  asm volatile("" : "+l"(at.o), "+l"(at.lse), "+r"(at.columns));  // here, and not later
  return at;
}

template <class S>
struct Merge {
  using Element = typename S::Element;
  using Kept = float[S::kOutProducts][2];  // of one row: a lane's two columns of each product

  typename S::Shared& smem;
  const Params& p;
  const Task& task;
  const Places& places;
  const int rank, group, warp, lane;

  // Both rows' shares of the block's result, divided by their sums; log-sum-exp of the block for
  // the row that this warpgroup keeps.
  __device__ __forceinline__ float weigh(const Partial<S>& w, float (&weight)[2]) const {
    float sums[2], lse[2], block[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sums[row] = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
      lse[row] = fmaf(w.max[row], p.scale_log2, ptx::log2_approx(sums[row]));
      smem.pairs[group][warp].lse[row][lane] = lse[row];
    }
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const Shares shares = shares_of(lse[row], smem.pairs[1 - group][warp].lse[row][lane]);
      weight[row] = shares.own * ptx::reciprocal_approx(sums[row]);
      block[row] = shares.lse;
    }
    // Rows without a key: 0 * inf. A branch and not a selection, and not made one by the compiler:
    // it keeps what it depends on before the wait for the last product.
    if (__any_sync(0xffffffffU, !(weight[0] + weight[1] < kInfinity))) [[unlikely]] {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        asm volatile("" ::: "memory");
        weight[0] = sums[0] == 0 ? 0.0F : weight[0];
        weight[1] = sums[1] == 0 ? 0.0F : weight[1];
      }
    }
    return group == 0 ? block[0] : block[1];
  }

  // Gives the other warpgroup one row, and adds up the other.
  template <int kKeptRow>
  __device__ __forceinline__ void meet(const Partial<S>& w, const float (&weight)[2],
                                       Kept& kept) const {
    constexpr int kGiven = 1 - kKeptRow;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const two = &w.o[n + j][2 * kGiven];
        words[j] = Element::pack(two[0] * weight[kGiven], two[1] * weight[kGiven]);
      }
      *reinterpret_cast<uint4*>(smem.pairs[kGiven][warp].outputs[n / 4][lane]) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
    ptx::named_barrier_sync(kPair + warp, 2 * 32);
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 4) {
      const uint4 four =
          *reinterpret_cast<const uint4*>(smem.pairs[kKeptRow][warp].outputs[n / 4][lane]);
      const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const two = &w.o[n + j][2 * kKeptRow];
        kept[n + j][0] = fmaf(two[0], weight[kKeptRow], Element::to_float(words[j] & 0xffffU));
        kept[n + j][1] = fmaf(two[1], weight[kKeptRow], Element::to_float(words[j] >> 16));
      }
    }
  }

  // Gives the other block half of the columns, and adds up the other half.
  __device__ __forceinline__ float cross(const Kept& kept, float lse,
                                         uint32_t (&words)[S::kPieces][4]) const {
    constexpr int kHalf = S::kOutProducts / 2;
    const auto& message = smem.messages[group][warp];
    ptx::store_async(places.remote_lse, __float_as_uint(lse), places.counted);
#pragma unroll
    for (int n = 0; n < kHalf; n += 4) {
      uint32_t sent[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float low = rank == 0 ? kept[kHalf + n + j][0] : kept[n + j][0];
        const float high = rank == 0 ? kept[kHalf + n + j][1] : kept[n + j][1];
        sent[j] = Element::pack(low, high);
      }
      ptx::store_async(places.remote + 512 * (n / 4), sent, places.counted);
    }
    ptx::mbarrier_wait(ptx::shared_address(&smem.received[group][warp]), 0);
    const Shares shares = shares_of(lse, message.lse[lane]);
#pragma unroll
    for (int n = 0; n < kHalf; n += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(message.outputs[n / 4][lane]);
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float low = rank == 0 ? kept[n + j][0] : kept[kHalf + n + j][0];
        const float high = rank == 0 ? kept[n + j][1] : kept[kHalf + n + j][1];
        words[n / 4][j] =
            Element::pack(fmaf(Element::to_float(its[j] & 0xffffU), shares.other, low * shares.own),
                          fmaf(Element::to_float(its[j] >> 16), shares.other, high * shares.own));
      }
    }
    return shares.lse;
  }

  __device__ __forceinline__ void store(uint32_t (&words)[S::kPieces][4], float lse) const {
    bool finite = true;
#pragma unroll
    for (int piece = 0; piece < S::kPieces; ++piece) {
      uint32_t(&w)[4] = words[piece];
      transpose_quads(w, lane);
#pragma unroll
      for (int j = 0; j < 4; ++j) finite = finite && Element::is_finite(w[j]);
      uint4 eight = make_uint4(w[0], w[1], w[2], w[3]);
      if (!places.in_use) eight = make_uint4(0, 0, 0, 0);
      if (places.columns > 32 * piece) *reinterpret_cast<uint4*>(places.o + 32 * piece) = eight;
    }
    if (places.lse != nullptr) *places.lse = places.in_use ? lse * kLn2 : kNoKey;
    const uint32_t lanes = __ballot_sync(0xffffffffU, places.in_use && !finite);
    if (lanes != 0) [[unlikely]] {
      __syncwarp();  // what was stored is stored again
      store_exactly<Element, !S::kWhole, 4>(p, lanes, task.first_query + 16 * warp + 8 * group,
                                            rank * S::kStoredColumns, S::kPieces);
    }
  }

  // The last product may be under way.
  __device__ __forceinline__ void run(Partial<S>& w) const {
    float weight[2];
    float lse = weigh(w, weight);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    Kept kept;
    if (group == 0) {
      meet<0>(w, weight, kept);
    } else {
      meet<1>(w, weight, kept);
    }
    uint32_t words[S::kPieces][4];
    if constexpr (S::kRanks > 1) {
      lse = cross(kept, lse, words);
    } else {
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        words[n / 4][n % 4] = Element::pack(kept[n][0], kept[n][1]);
      }
    }
    store(words, lse);
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
