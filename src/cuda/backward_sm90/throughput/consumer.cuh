// A consumer warpgroup: 64 keys, and all queries that see keys of its block's tile.
//
// A step of 96 queries, from its dP and P to the next one's (a: the accumulator, p: P or dS):
//
//   p = P (a - delta), stored | a = S next | dK += p Q covers exp(a) | a = dQ^T = K^T dS^T
//     | dV next += p dO covers the addition of dQ | a = dP next
//
// The two warpgroups exchange only dS, and drift apart: while one
// computes exponentials or adds dQ, the other uses the Tensor Cores.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/capped.cuh"
#include "cuda/backward_sm90/common/operand.cuh"
#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/turns.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

inline constexpr int kAllConsumersBarrier = 1;  // named; kConsumerBarrier + group: a consumer's own
inline constexpr int kConsumerBarrier = 2;

template <class S>
struct Consumer {
  using Shape = S;
  using Element = typename S::Element;
  using QTile = typename S::QTile;
  using KTile = typename S::KTile;
  using DsTile = typename S::DsTile;

  static constexpr int kStaged = S::kConfig.bulk_products;  // of dQ

  typename S::Shared& smem;
  const typename S::KernelParams& params;
  uint32_t shared;  // its address
  uint32_t group;   // 0 or 1
  float a[S::kScoreProducts][4];
  uint32_t p[S::kQuerySteps][4];
  float dk[S::kDimProducts][4], dv[S::kDimProducts][4];
  // P times the softcap's slopes; with pairs P before dropout.
  uint32_t sloped[S::kCaps || S::kPairs ? S::kQuerySteps : 1][4];
  uint32_t drawn[S::kPairs ? S::kConfig.block_q / 64 : 1];            // for dropout (pairs.cuh)
  float narrow[S::kConfig.splits_queries() ? S::kDqProducts : 1][4];  // dQ^T, if a is wider

  // Read again for each use: holding it would take a register from the products.
  __device__ __forceinline__ static uint32_t lane() { return ptx::thread_index() % kWarpThreads; }
  __device__ __forceinline__ static uint32_t warp() {
    return ptx::thread_index() / kWarpThreads % kWarpgroupWarps;
  }
  // The warp's index among the warps of both consumers.
  __device__ __forceinline__ static uint32_t consumer_warp() {
    return ptx::thread_index() / kWarpThreads - kWarpgroupWarps;
  }

  __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) const {
    ptx::mbarrier_wait_together(shared + barrier, parity);
  }
  // Signals that this warp no longer uses what the barrier guards.
  __device__ __forceinline__ void release(uint32_t barrier) const {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(shared + barrier);
  }

  // The operand at byte `at` of the shared memory.
  __device__ __forceinline__ Operand operand(uint32_t at, uint32_t leading_bytes) const {
    return {(shared & S::kOperandBits) + at, leading_bytes};
  }

  // a = A B^T with rows of `group` of the tile at `left` and queries of the tile at `right`.
  __device__ __forceinline__ void issue_scores(uint32_t left, uint32_t right) {
    const Operand x = operand(left + group * (kWarpgroupKeys * KTile::kPanelRowBytes), 16);
    const Operand y = operand(right, 16);
#pragma unroll
    for (int step = 0; step < S::kDimSteps; ++step) {
      const uint64_t x_at = x.at(tile::k_major_step<KTile>(step));
      const uint64_t y_at = y.at(tile::k_major_step<QTile>(step));
      if (step == 0) {
        Element::template multiply_ss<Accumulate::overwrite, Major::k>(a, x_at, y_at);
      } else {
        Element::template multiply_ss<Accumulate::add, Major::k>(a, x_at, y_at);
      }
    }
    ptx::warpgroup_commit();
  }
  __device__ __forceinline__ void issue_s(uint32_t stage) {
    issue_scores(S::kK, S::kQ + stage * QTile::kBytes);
  }
  __device__ __forceinline__ void issue_dp(uint32_t stage) {
    issue_scores(S::kV, S::kDo + stage * QTile::kBytes);
  }

  // sums += p Y, with the queries of the tile at `right`.
  __device__ __forceinline__ void issue_sums(float (&sums)[S::kDimProducts][4], uint32_t right) {
    const Operand y = operand(right, QTile::kPanelBytes);
#pragma unroll
    for (int step = 0; step < S::kQuerySteps; ++step) {
      Element::multiply_rs(sums, p[step], y.at(step * 16 * QTile::kPanelRowBytes));
    }
    ptx::warpgroup_commit();
  }
  __device__ __forceinline__ void issue_dk(uint32_t stage) {
    issue_sums(dk, S::kQ + stage * QTile::kBytes);
  }
  __device__ __forceinline__ void issue_dv(uint32_t stage) {
    issue_sums(dv, S::kDo + stage * QTile::kBytes);
  }

  // dQ^T = K^T dS^T, over both consumers' keys, in the first of the accumulator's registers.
  __device__ __forceinline__ float (&dq())[S::kDqProducts][4] {
    if constexpr (S::kConfig.splits_queries()) {
      return narrow;
    } else {
      return a;
    }
  }
  __device__ __forceinline__ void issue_dq() {
    constexpr bool kSplits = S::kConfig.splits_queries();
    const Operand x = operand(S::kK + (kSplits ? 0 : group * KTile::kPanelBytes), 16);
    const uint32_t first_row =
        kSplits ? group * (S::kConfig.dq_queries() * DsTile::kPanelRowBytes) : 0;
    const Operand y = operand(S::kDs + first_row, 16);
#pragma unroll
    for (int step = 0; step < S::kKeySteps; ++step) {
      const uint64_t x_at = x.at(step * 16 * KTile::kPanelRowBytes);
      const uint64_t y_at = y.at(tile::k_major_step<DsTile>(step));
      if (step == 0) {
        Element::template multiply_ss<Accumulate::overwrite, Major::mn>(dq(), x_at, y_at);
      } else {
        Element::template multiply_ss<Accumulate::add, Major::mn>(dq(), x_at, y_at);
      }
    }
    ptx::warpgroup_commit();
  }

  __device__ __forceinline__ const attention::BandLimits& own_limits() const {
    if constexpr (S::kOptions) {
      return smem.task.rows.limits;
    } else {
      return params.limits;
    }
  }

  // Sets the score of pairs that are not visible to -inf, and adds what pairs have.
  __device__ __forceinline__ void mask(int number) {
    mask_band(number);
    if constexpr (S::kPairs) add_pair_terms(*this, number);
  }
  __device__ __forceinline__ void mask_band(int number) {
    const Step& step = smem.step[number % kSteps];
    if (step.masked == 0) return;
    const auto l = static_cast<int>(lane());
    const int key =
        static_cast<int>(group) * kWarpgroupKeys + static_cast<int>(warp()) * 16 + l / 4;
    const int first = step.first + 2 * (l % 4), keys = step.keys;
    const attention::BandLimits& limits = own_limits();
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = key + 8 * slot;
      const int begin = row - limits.high - first;
      const int end = row < keys ? row - limits.low + 1 - first : begin;
#pragma unroll
      for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
        for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
          const int column = 8 * n + e % 2;
          if (column < begin || column >= end) a[n][e] = attention::kNoKey;
        }
      }
    }
  }

  // The address of the statistics of a lane's two queries of product 0; `which`: 0 LSE, 1 delta.
  __device__ __forceinline__ uint32_t row_stats_at(uint32_t stage, uint32_t which) const {
    return shared + S::kRowStats + (stage * 2 + which) * (4 * S::kBlockQ) + lane() % 4 * 8;
  }

  // a = P.
  __device__ __forceinline__ void exponentiate(uint32_t stage) {
    if constexpr (S::kCaps) {
      if (params.options.cap.cap_log2 > 0) return exponentiate_capped(stage);
    }
    const uint32_t row_stats = row_stats_at(stage, 0);
    const float scale = params.scale_log2;
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
      const float2 lse = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a[n][e] = ptx::exp2_approx(fmaf(a[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
      }
    }
  }
  // a = P of capped scores; also computes sloped.
  __device__ __forceinline__ void exponentiate_capped(uint32_t stage) requires(S::kCaps) {
    const uint32_t row_stats = row_stats_at(stage, 0);
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
      const float2 lse = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        float of[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = a[n][2 * slot + e];
          const CappedScore capped = capped_score(params.options, score);
          score = ptx::exp2_approx(capped.log2 + (e == 0 ? lse.x : lse.y));
          of[e] = score * capped.slope;
        }
        sloped[n / 2][n % 2 * 2 + slot] = Element::pack(of[0], of[1]);
      }
    }
  }
  __device__ __forceinline__ void pack() {
    pack_weights();
    if constexpr (S::kPairs) remove_pairs(*this);
  }
  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        p[n / 2][n % 2 * 2 + slot] = Element::pack(a[n][2 * slot], a[n][2 * slot + 1]);
      }
    }
    if constexpr (S::kCaps) {
      if (params.options.cap.cap_log2 > 0) return;
#pragma unroll
      for (int step = 0; step < S::kQuerySteps; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sloped[step][i] = p[step][i];
      }
    }
  }
  // Turns P into dS, in a and packed in p.
  __device__ __forceinline__ void weigh(int number) {
    if constexpr (S::kPairs) {
      weigh_pairs(*this, number);
    } else {
      weigh_kept(number % kStages);
    }
  }
  // p (a - delta)
  __device__ __forceinline__ void weigh_kept(uint32_t stage) {
    const uint32_t row_stats = row_stats_at(stage, 1);
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
      const float2 delta = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        uint32_t& pair = p[n / 2][n % 2 * 2 + slot];
        const float2 weight =
            Element::unpack(S::kCaps ? sloped[S::kCaps ? n / 2 : 0][n % 2 * 2 + slot] : pair);
        const float x = weight.x * (a[n][2 * slot] - delta.x);
        const float y = weight.y * (a[n][2 * slot + 1] - delta.y);
        if constexpr (S::kPairs) a[n][2 * slot] = x, a[n][2 * slot + 1] = y;
        pair = Element::pack(x, y);
      }
    }
  }

  // Writes dS to shared memory, with queries as rows.
  __device__ __forceinline__ void store_ds() {
    const uint32_t l = lane(), row = l / 16 * 8 + l % 8, chunk = warp() * 2 + l / 8 % 2;
    const uint32_t to = shared + S::kDs + group * DsTile::kPanelBytes +
                        row * DsTile::kPanelRowBytes + ((chunk ^ (l % 8)) << 4);
#pragma unroll
    for (int step = 0; step < S::kQuerySteps; ++step) {
      ptx::stmatrix_x4_trans(to + step * 16 * DsTile::kPanelRowBytes, p[step][0], p[step][1],
                             p[step][2], p[step][3]);
    }
    ptx::fence_proxy_async();
    release(S::kDsFull);
  }

  __device__ __forceinline__ uint32_t own_staging() const {
    return shared + S::kStaging + consumer_warp() * S::kStagingBytes;
  }
  __device__ __forceinline__ void stage_dq() {
#pragma unroll
    for (int n = 0; n < kStaged; ++n) {
      ptx::store_shared_x4(own_staging() + n * kSumsBytes + lane() * 16, dq()[n]);
    }
    ptx::fence_proxy_async();
  }
  // The lane's sums of product n of a block; `sums`: the warp's sums of the block.
  __device__ __forceinline__ static float* lane_sums(float* sums, int n) {
    return sums + n * 32 * kSumsFloats + lane() * kSumsFloats;
  }

  // Adds dQ of a step to the sums, in the warp's register order.
  __device__ __forceinline__ void add_dq(int number) requires(!S::kDeterministic) {
    float* const to = params.sums + S::sums_of(smem.step[number % kSteps].block, consumer_warp());
    if (lane() == 0) ptx::tma_store_wait_read<0>();
    __syncwarp();
    stage_dq();
    __syncwarp();
    if (lane() == 0) {
      ptx::bulk_add_f32(to, own_staging(), S::kStagingBytes);
      ptx::tma_store_commit();
    }
#pragma unroll
    for (int n = kStaged; n < S::kDqProducts; ++n) ptx::add_f32x4(lane_sums(to, n), dq()[n]);
  }
  // Deterministic: the adder adds what is staged. The last tile stores rows.
  __device__ __forceinline__ void add_dq(int number) requires(S::kDeterministic) {
    const Step& step = smem.step[number % kSteps];
    const bool is_last = step.is_last != 0;
    wait(S::kStagingFree + 8 * group, number % 2 ^ 1);
    if (is_last) {
      if constexpr (S::kAddsItself) wait(S::kTurnHere + 8 * group, number % 2);
      if (step.turn != 0) add_other_sums(step);
      store_dq(step);
      // Each thread arrives: racecheck does not follow one arrival on behalf of a warp.
      ptx::mbarrier_arrive(shared + S::kStored + 8 * group);
    } else {
      stage_dq();
      if constexpr (S::kAddsItself) wait(S::kTurnHere + 8 * group, number % 2);
      float* const to = params.sums + S::sums_of(step.block, consumer_warp());
#pragma unroll
      for (int n = kStaged; n < S::kDqProducts; ++n) {
        ptx::add_or_store_f32x4(lane_sums(to, n), dq()[n], step.turn == 0);
      }
      release(S::kStaged + 8 * group);
    }
  }
  // dQ += the sums of the other tiles.
  __device__ __forceinline__ void add_other_sums(const Step& step) {
    wait(S::kSumsHere + 8 * group, step.sums_parity);
    float* const from = params.sums + S::sums_of(step.block, consumer_warp());
#pragma unroll
    for (int n = kStaged; n < S::kDqProducts; ++n) {
      ptx::load_and_add_f32x4(dq()[n], lane_sums(from, n));
    }
#pragma unroll
    for (int n = 0; n < kStaged; ++n) {
      const uint4 bits = ptx::load_shared_x4(own_staging() + n * kSumsBytes + lane() * 16);
      dq()[n][0] += __uint_as_float(bits.x);
      dq()[n][1] += __uint_as_float(bits.y);
      dq()[n][2] += __uint_as_float(bits.z);
      dq()[n][3] += __uint_as_float(bits.w);
    }
    __syncwarp();
  }
  // Rows of dQ are stored through the warp's staging: 16 dims per query, in two chunks of 16 bytes.
  __device__ __forceinline__ void store_dq(const Step& step) {
    constexpr uint32_t kRowBytes = 32;
    constexpr bool kSplits = S::kConfig.splits_queries();
    const auto chunk_at = [](uint32_t row, uint32_t half) {
      return row * kRowBytes + ((half ^ (row / 4 % 2)) << 4);
    };
    float zero = 0;  // or NaN
    const uint32_t l = lane();
#pragma unroll
    for (int n = 0; n < S::kDqProducts; n += 2) {
      uint32_t of[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = dq()[n + i / 2][i % 2 * 2], y = dq()[n + i / 2][i % 2 * 2 + 1];
        zero = fmaf(x, 0, fmaf(y, 0, zero));
        of[i] = Element::pack(x * params.scale, y * params.scale);
      }
      ptx::stmatrix_x4_trans(own_staging() + chunk_at(8 * (n + l / 16) + l % 8, l / 8 % 2), of[0],
                             of[1], of[2], of[3]);
    }
    if (zero != 0) atomicExch(params.turns + int64_t{step.block} * kConsumers + group, kNotFinite);
    __syncwarp();
    const int first_dim = (kSplits ? 0 : static_cast<int>(group) * kWarpgroupKeys) +
                          static_cast<int>(warp()) * 16 + static_cast<int>(l % 2) * 8;
    auto* const to = static_cast<uint16_t*>(params.dq.data) + step.batch * params.dq.batch +
                     step.head * params.dq.head + step.row * params.dq.row;
    const int first_query = kSplits ? static_cast<int>(group) * S::kConfig.dq_queries() : 0;
#pragma unroll
    for (int i = 0; i < S::kConfig.dq_queries() / 16; ++i) {
      const uint32_t row = 16 * i + l / 2;
      const int query = first_query + static_cast<int>(row);
      if (query >= step.queries || first_dim >= params.head_dim_qk) continue;
      *reinterpret_cast<uint4*>(to + query * params.dq.row + first_dim) =
          ptx::load_shared_x4(own_staging() + chunk_at(row, l % 2));
    }
    __syncwarp();  // wgmma wants all lanes
    ptx::fence_proxy_async();
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < S::kDimProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) dk[n][e] = dv[n][e] = 0;
    }
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) a[n][e] = 0;
    }
    ptx::warpgroup_pin(a);
    ptx::warpgroup_pin(dk);
    ptx::warpgroup_pin(dv);
  }

  __device__ __forceinline__ void run(int steps) {
    clear();
    wait(S::kKvFull, 0);
    wait(S::kQFull, 0);
    ptx::warpgroup_fence();
    issue_s(0);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(a);
    mask(0);
    exponentiate(0);
    pack();
    wait(S::kOFull, 0);
    ptx::warpgroup_fence();
    issue_dv(0);
    issue_dp(0);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(a);
    ptx::warpgroup_pin(dv);
    release(S::kOEmpty);
#pragma unroll 1
    for (int number = 0; number + 1 < steps; ++number) {
      const uint32_t stage = number % kStages, next = stage ^ 1;
      const uint32_t next_parity = (number + 1) / kStages % 2, ds_parity = number % 2;
      weigh(number);
      wait(S::kDsEmpty, ds_parity ^ 1);
      store_ds();
      wait(S::kQFull + 8 * next, next_parity);
      ptx::warpgroup_fence();
      issue_s(next);
      issue_dk(stage);
      ptx::warpgroup_wait<1>();
      ptx::warpgroup_pin(a);
      mask(number + 1);
      exponentiate(next);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(a);
      ptx::warpgroup_pin(dk);
      // Each thread arrives, also for the statistics: racecheck does not follow one arrival on behalf of a warp.
      ptx::mbarrier_arrive(shared + S::kQEmpty + 8 * stage);
      pack();
      wait(S::kDsFull, ds_parity);
      wait(S::kOFull + 8 * next, next_parity);
      ptx::warpgroup_fence();
      issue_dq();
      issue_dv(next);
      ptx::warpgroup_wait<1>();
      ptx::warpgroup_pin(dq());
      release(S::kDsEmpty);
      add_dq(number);
      ptx::warpgroup_fence();
      issue_dp(next);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(a);
      ptx::warpgroup_pin(dv);
      release(S::kOEmpty + 8 * next);
    }
    const int number = steps - 1;
    weigh(number);
    wait(S::kDsEmpty, number % 2 ^ 1);
    store_ds();
    ptx::warpgroup_fence();
    issue_dk(number % kStages);
    wait(S::kDsFull, number % 2);
    ptx::warpgroup_fence();
    issue_dq();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(dq());
    ptx::warpgroup_pin(dk);
    add_dq(number);
  }

  // consumer_rows.cuh
  __device__ void stage_rows(uint32_t to, const float (&sums)[S::kDimProducts][4],
                             float scale) const;
  __device__ void stage_sums();
  __device__ bool all_finite() const;
  __device__ void stage_zeros() const;
  __device__ void store_rows(const Maps& maps, const typename S::OwnTask& task) const;
  __device__ void store_rows_of_entry(const EntryTask& task) const;
  __device__ void store_staged(uint32_t staged, const Target& target, int columns,
                               const EntryTask& task, int first, int left) const;
};

}  // namespace flashcore::cuda::backward_sm90::throughput

#include "cuda/backward_sm90/throughput/consumer_rows.cuh"
#include "cuda/backward_sm90/throughput/pairs.cuh"
