// Deterministic additions to dQ: for each consumer, a thread of the producer's warpgroup waits for the
// turn of each step, adds the sums that the consumer's warps have staged, and advances the turn when
// they have arrived. For the last tile, it fetches the sums: the consumer adds its own and stores rows.
//
// It waits for other blocks, and for the end of the additions:
// a consumer would spend a third of its time on these waits.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/turns.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
struct Adder {
  typename S::Shared& smem;
  const Params& p;
  const typename S::OwnTask& task;
  int group;  // the consumer's

  __device__ __forceinline__ void run() const {
    const auto barrier = [this](uint64_t(&of)[kConsumers]) {
      return ptx::shared_address(&of[group]);
    };
    int lasts = 0;
#pragma unroll 1
    for (int number = 0; number < task.steps; ++number) {
      ptx::mbarrier_wait(ptx::shared_address(&smem.described[number % kSteps]),
                         number / kSteps % 2);
      const Step& step = smem.step[number % kSteps];
      const int block = step.block, before = step.turn;
      uint32_t* const turn = p.turns + int64_t{block} * kConsumers + group;
      // The first tile need not wait; if it is also the last, the consumer may already have marked the turn.
      if (before != 0) ptx::wait_for_turn(turn, static_cast<uint32_t>(before));
      if constexpr (S::kAddsItself) ptx::mbarrier_arrive(barrier(smem.turn_here));
      if (step.is_last != 0) {
        if (before != 0) load_sums(block, barrier(smem.sums_here));
        ptx::mbarrier_wait(barrier(smem.stored), lasts++ % 2);
        ptx::mbarrier_arrive(barrier(smem.staging_free));
        continue;
      }
      ptx::mbarrier_wait(barrier(smem.staged), (number - lasts) % 2);
      add_sums(block, before == 0);
      ptx::tma_store_commit();
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(barrier(smem.staging_free));
      ptx::bulk_wait<0>();
      if constexpr (S::kAddsItself) ptx::fence_gpu();
      ptx::count_turn(turn);
    }
  }

  // Calls act(sums, staging) for each warp of the consumer.
  template <class Act>
  __device__ __forceinline__ void for_each_warp(int block, const Act& act) const {
#pragma unroll
    for (int w = 0; w < kWarpgroupWarps; ++w) {
      const int warp = group * kWarpgroupWarps + w;
      act(p.sums + S::sums_of(block, static_cast<uint32_t>(warp)),
          ptx::shared_address(smem.staging[warp]));
    }
  }
  __device__ __forceinline__ void add_sums(int block, bool stores) const {
    for_each_warp(block, [stores](float* to, uint32_t from) {
      if (stores) {
        ptx::bulk_store(to, from, S::kStagingBytes);
      } else {
        ptx::bulk_add_f32(to, from, S::kStagingBytes);
      }
    });
  }
  __device__ __forceinline__ void load_sums(int block, uint32_t barrier) const {
    ptx::fence_proxy_async_global();
    ptx::mbarrier_arrive_expect(barrier, kWarpgroupWarps * S::kStagingBytes);
    for_each_warp(block, [barrier](const float* from, uint32_t to) {
      ptx::bulk_load(to, from, S::kStagingBytes, barrier);
    });
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
