// From a warp's outputs to O and LSE, by way of the other block of the cluster: that gets half of
// the columns, divided by the own sums, and gives the other half.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_medium_sm90/shape.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/params.hpp"
#include "cuda/forward_small_sm90/shares.cuh"
#include "cuda/forward_small_sm90/softmax.cuh"
#include "cuda/forward_small_sm90/transpose.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::kInfinity, forward_small_sm90::kLn2, forward_small_sm90::kNoKey;
using forward_small_sm90::Params, forward_small_sm90::Partial, forward_small_sm90::Task;

// Where a lane stores: found before the keys have come, when there is time for it. Its second row
// is eight after the first.
struct Places {
  uint16_t* o;  // of the first of the lane's outputs
  int64_t o_step;
  float* lse;  // null: the lane has none to store
  int64_t lse_step;
  int query;                                          // counted in the entry
  int columns;                                        // of O from that output on
  uint32_t remote, remote_lse, counted, lse_counted;  // in the other block, and their barriers
};

template <class S>
__device__ __forceinline__ Places find_places(const typename S::Shared& smem, const Params& p,
                                              const Task& task, int rank, int group, int warp,
                                              int lane) {
  Places at;
  at.query = task.first_query + 16 * warp + lane / 4;
  const int column = rank * S::kStoredColumns + 8 * (lane % 4);
  const int64_t row = task.q_row + at.query;
  at.columns = p.head_dim_v - column;
  at.o = static_cast<uint16_t*>(p.o) +
         (task.batch * p.o_batch + task.head * p.o_head + row * p.o_row + column);
  at.o_step = 8 * p.o_row;
  at.lse = nullptr;
  if (p.lse != nullptr && rank == 0 && lane % 4 == 0) {
    at.lse = p.lse + (task.batch * p.lse_batch + task.head * p.lse_head + row * p.lse_row);
  }
  at.lse_step = 8 * p.lse_row;
  const auto other = static_cast<uint32_t>(rank ^ 1);
  const int its_warp = group * kGroupWarps + warp;
  const auto& message = smem.messages[its_warp];
  at.remote = ptx::cluster_address(ptx::shared_address(&message.outputs[0][lane][0]), other);
  at.remote_lse = ptx::cluster_address(ptx::shared_address(&message.lse[0][lane]), other);
  at.counted = ptx::cluster_address(ptx::shared_address(&smem.received[its_warp]), other);
  at.lse_counted = ptx::cluster_address(ptx::shared_address(&smem.lse_received[group]), other);
  asm volatile("" : "+r"(at.remote), "+r"(at.remote_lse), "+r"(at.counted), "+r"(at.lse_counted));
  asm volatile("" : "+l"(at.o), "+l"(at.o_step), "+l"(at.lse), "+l"(at.lse_step), "+r"(at.columns));
  return at;  // here, and not later
}

template <class S>
struct Store {
  using Element = typename S::Element;
  typename S::Shared& smem;
  const Params& p;
  const Task& task;  // of the warpgroup
  const Places& places;
  const int rank, group, warp, lane;

  // What both rows are multiplied by, and their log-sum-exps (of 2): while the last product is
  // under way.
  __device__ __forceinline__ void weigh(const Partial<S>& w, float (&weight)[2],
                                        float (&lse)[2]) const {
    float sums[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sums[row] = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
      weight[row] = ptx::reciprocal_approx(sums[row]);
      lse[row] = fmaf(w.max[row], p.scale_log2, ptx::log2_approx(sums[row]));
      ptx::store_async(places.remote_lse + 128 * row, __float_as_uint(lse[row]),
                       places.lse_counted);
    }
    // Rows without a key. A branch and not a selection, and not made one by the compiler: it keeps
    // what it depends on before the wait for the last product.
    if (__any_sync(0xffffffffU, fmaxf(weight[0], weight[1]) == kInfinity)) [[unlikely]] {
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        asm volatile("" ::: "memory");
        weight[0] = sums[0] == 0 ? 0.0F : weight[0];
        weight[1] = sums[1] == 0 ? 0.0F : weight[1];
      }
    }
  }

  // Half of the columns go to the other block, the rest is added to what comes from there.
  template <int kOwnRank>
  __device__ __forceinline__ void exchange(const Partial<S>& w, float (&weight)[2], float (&lse)[2],
                                           uint32_t (&words)[2][S::kStoredProducts]) const {
    constexpr int kKept = kOwnRank * S::kStoredProducts;
    constexpr int kSent = S::kStoredProducts - kKept;
    const auto& message = smem.messages[group * kGroupWarps + warp];
#pragma unroll
    for (int n = 0; n < S::kStoredProducts; ++n) {
      uint32_t four[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) four[e] = __float_as_uint(w.o[kSent + n][e] * weight[e / 2]);
      ptx::store_async(places.remote + 512 * n, four, places.counted);
    }
    ptx::mbarrier_wait(ptx::shared_address(&smem.lse_received[group]), 0);
    float share[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto shares = forward_small_sm90::shares_of(lse[row], message.lse[row][lane]);
      weight[row] *= shares.own;
      share[row] = shares.other;
      lse[row] = shares.lse;
    }
    ptx::mbarrier_wait(ptx::shared_address(&smem.received[group * kGroupWarps + warp]), 0);
#pragma unroll
    for (int n = 0; n < S::kStoredProducts; ++n) {
      const float4 its = *reinterpret_cast<const float4*>(message.outputs[n][lane]);
      const float(&own)[4] = w.o[kKept + n];
      words[0][n] = Element::pack(fmaf(its.x, share[0], own[0] * weight[0]),
                                  fmaf(its.y, share[0], own[1] * weight[0]));
      words[1][n] = Element::pack(fmaf(its.z, share[1], own[2] * weight[1]),
                                  fmaf(its.w, share[1], own[3] * weight[1]));
    }
  }

  __device__ __forceinline__ void store(uint32_t (&words)[2][S::kStoredProducts],
                                        const float (&lse)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int query = places.query + 8 * row;
      const bool in_use = query < task.len_q, exists = query < task.rows_q;
      uint16_t* const o = places.o + row * places.o_step;
      bool finite = true;
#pragma unroll
      for (int n = 0; n < S::kStoredProducts; n += 4) {
        uint32_t four[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          four[j] = words[row][n + j];
          finite = finite && Element::is_finite(four[j]);
        }
        forward_small_sm90::transpose_quads(four, lane);
        uint4 eight = make_uint4(four[0], four[1], four[2], four[3]);
        if (!in_use) eight = make_uint4(0, 0, 0, 0);
        if (exists && places.columns > 8 * n) *reinterpret_cast<uint4*>(o + 8 * n) = eight;
      }
      if (places.lse != nullptr && exists) {
        places.lse[row * places.lse_step] = in_use ? lse[row] * kLn2 : kNoKey;
      }
      const uint32_t lanes = __ballot_sync(0xffffffffU, in_use && !finite);
      if (lanes != 0) [[unlikely]] {
        __syncwarp();  // what was stored is stored again
        forward_small_sm90::store_exactly<Element, !S::kWhole, 4>(
            p, lanes, task.first_query + 16 * warp + 8 * row, rank * S::kStoredColumns,
            S::kStoredColumns / 32);
      }
    }
  }

  __device__ __forceinline__ void run(const Partial<S>& w, float (&weight)[2],
                                      float (&lse)[2]) const {
    uint32_t words[2][S::kStoredProducts];
    if (rank == 0) {
      exchange<0>(w, weight, lse, words);
    } else {
      exchange<1>(w, weight, lse, words);
    }
    store(words, lse);
  }
};

}  // namespace flashcore::cuda::forward_medium_sm90
