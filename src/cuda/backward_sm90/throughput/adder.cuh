// Additions to dQ in turn: a thread of the producer's warpgroup for each consumer, which waits for the
// turn of each step, adds what the consumer's warps have staged, and counts when all of it is there.
//
// These waits are for other blocks, and for the end of the additions: a consumer would wait a third
// of its time for them.
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
  int group;  // of the consumer

  __device__ __forceinline__ void run() const {
    Walk<S> walk(p, task);
#pragma unroll 1
    for (int number = 0; number < task.steps; ++number, walk.advance()) {
      const int block = walk.number();
      uint32_t* const turn = p.turns + int64_t{block} * kConsumers + group;
      const uint32_t own_turn = walk.turn();
      ptx::wait_for_turn(turn, own_turn);
      if constexpr (S::kAddsItself) {
        ptx::mbarrier_arrive(ptx::shared_address(&smem.turn_here[group]));
      }
      ptx::mbarrier_wait(ptx::shared_address(&smem.staged[group]), number % 2);
#pragma unroll
      for (int w = 0; w < kWarpgroupWarps; ++w) {
        const int warp = group * kWarpgroupWarps + w;
        float* const to = p.sums + S::sums_of(block, static_cast<uint32_t>(warp));
        const uint32_t from = ptx::shared_address(smem.staging[warp]);
        if (own_turn == 0) {
          ptx::bulk_store(to, from, S::kStagingBytes);
        } else {
          ptx::bulk_add_f32(to, from, S::kStagingBytes);
        }
      }
      ptx::tma_store_commit();
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(ptx::shared_address(&smem.staging_free[group]));
      ptx::bulk_wait<0>();
      if constexpr (S::kAddsItself) ptx::fence_gpu();
      ptx::count_turn(turn);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
