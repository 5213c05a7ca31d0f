// From a warp's outputs to O and LSE, by way of the other block of the cluster if there is one:
// that gets half of the columns, divided by the own sums, and gives the other half.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_medium_sm90/shape.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/params.hpp"
#include "cuda/forward_small_sm90/softmax.cuh"
#include "cuda/forward_small_sm90/transpose.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::kNoKey;
using forward_small_sm90::Params, forward_small_sm90::Partial, forward_small_sm90::Task;

inline constexpr float kLn2 = 0.6931471805599453F;

template <class S>
struct Store {
  using Element = typename S::Element;
  using Message = typename S::Message;
  typename S::Shared& smem;
  const Params& p;
  const Task& task;  // of the warpgroup
  const int group, warp, lane;

  // Half of the columns go to the other block; weights are the own share of each row.
  template <int kOwnRank>
  __device__ __forceinline__ void exchange(const Partial<S>& w, float (&weight)[2], float (&lse)[2],
                                           uint32_t (&words)[2][S::kStoredProducts]) const {
    constexpr int kSent = (1 - kOwnRank) * S::kStoredProducts,
                  kKept = kOwnRank * S::kStoredProducts;
    Message& own = smem.messages[group * kGroupWarps + warp];
    const uint32_t to =
        ptx::cluster_address(ptx::shared_address(&own.outputs[0][lane][0]), 1 - kOwnRank);
    const uint32_t to_lse =
        ptx::cluster_address(ptx::shared_address(&own.lse[0][lane]), 1 - kOwnRank);
    const uint32_t received = ptx::shared_address(&smem.received[group * kGroupWarps + warp]);
    const uint32_t counted = ptx::cluster_address(received, 1 - kOwnRank);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      ptx::store_async(to_lse + 128 * row, __float_as_uint(lse[row]), counted);
    }
#pragma unroll
    for (int n = 0; n < S::kStoredProducts; n += 2) {
      uint32_t four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const two = &w.o[kSent + n + j / 2][j % 2 * 2];
        four[j] = Element::pack(two[0] * weight[j % 2], two[1] * weight[j % 2]);
      }
      ptx::store_async(to + 512 * (n / 2), four, counted);
    }
    ptx::mbarrier_wait(received, 0);
    float share[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float other = own.lse[row][lane];
      const float reference = attention::finite_reference(fmaxf(lse[row], other));
      const float mine = ptx::exp2_approx(lse[row] - reference);
      const float its = ptx::exp2_approx(other - reference);
      const float sum = mine + its, inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
      weight[row] *= mine * inverse;
      share[row] = its * inverse;
      lse[row] = reference + ptx::log2_approx(sum);
    }
#pragma unroll
    for (int n = 0; n < S::kStoredProducts; n += 2) {
      const uint4 four = *reinterpret_cast<const uint4*>(own.outputs[n / 2][lane]);
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = j % 2;
        const float* const two = &w.o[kKept + n + j / 2][row * 2];
        const float low =
            fmaf(Element::to_float(its[j] & 0xffffU), share[row], two[0] * weight[row]);
        const float high = fmaf(Element::to_float(its[j] >> 16), share[row], two[1] * weight[row]);
        words[row][n + j / 2] = Element::pack(low, high);
      }
    }
  }

  __device__ __forceinline__ void run(const Partial<S>& w, float (&inverse)[2], float (&lse)[2],
                                      int rank) const {
    uint32_t words[2][S::kStoredProducts];
    if constexpr (S::kRanks == 1) {
#pragma unroll
      for (int n = 0; n < S::kStoredProducts; ++n) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const float* const two = &w.o[n][2 * row];
          words[row][n] = Element::pack(two[0] * inverse[row], two[1] * inverse[row]);
        }
      }
    } else if (rank == 0) {
      exchange<0>(w, inverse, lse, words);
    } else {
      exchange<1>(w, inverse, lse, words);
    }
    constexpr int kColumns = 8 * S::kStoredProducts;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int query = task.first_query + 16 * warp + 8 * row + lane / 4;
      const bool in_use = query < task.len_q, exists = query < task.rows_q;
      const int64_t at = task.q_row + query;
      const int column = rank * kColumns + 8 * (lane % 4);
      auto* const o = static_cast<uint16_t*>(p.o) +
                      (task.batch * p.o_batch + task.head * p.o_head + at * p.o_row + column);
      bool finite = true;
#pragma unroll
      for (int n = 0; n < S::kStoredProducts; n += 4) {
        uint32_t four[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] = words[row][n + j];
        forward_small_sm90::transpose_quads(four, lane);
#pragma unroll
        for (int j = 0; j < 4; ++j) finite = finite && Element::is_finite(four[j]);
        if (!in_use) four[0] = four[1] = four[2] = four[3] = 0;
        if (exists && column + 8 * n < p.head_dim_v) {
          *reinterpret_cast<uint4*>(o + 8 * n) = make_uint4(four[0], four[1], four[2], four[3]);
        }
      }
      if (p.lse != nullptr && rank == 0 && lane % 4 == 0 && exists) {
        p.lse[task.batch * p.lse_batch + task.head * p.lse_head + at * p.lse_row] =
            in_use ? lse[row] * kLn2 : kNoKey;
      }
      const uint32_t lanes = __ballot_sync(0xffffffffU, in_use && !finite);
      if (lanes != 0) [[unlikely]] {
        __syncwarp();  // what was stored is stored again
        forward_small_sm90::store_exactly<Element, !S::kWhole, 4>(
            p, lanes, task.first_query + 16 * warp + 8 * row, rank * kColumns, kColumns / 32);
      }
    }
  }
};

}  // namespace flashcore::cuda::forward_medium_sm90
