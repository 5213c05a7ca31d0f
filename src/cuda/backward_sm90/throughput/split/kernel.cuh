// backward_sm90_split: a cluster of blocks per KV tile, each a block
// of backward_sm90 (sm_90a) with a part of the tile's queries.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/throughput/kernel.cuh"
#include "cuda/backward_sm90/throughput/split/exchange.cuh"
#include "cuda/backward_sm90/throughput/split/shape.cuh"

namespace flashcore::cuda::backward_sm90::split {

using throughput::Params;

template <class S>
__device__ __forceinline__ void make_barriers(typename S::Shared& smem) {
  throughput::make_barriers<S>(smem);
  const uint32_t tile_here = ptx::shared_address(&smem.task.tile_here);
  const uint32_t received = ptx::shared_address(&smem.task.received);
  ptx::mbarrier_init(tile_here, 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.task.ready),
                     throughput::kConsumerWarps * S::OwnTask::splits);
  ptx::mbarrier_init(received, 1);
  ptx::publish_barriers();
  ptx::mbarrier_arrive_expect(tile_here, sizeof smem.tile);
  ptx::mbarrier_arrive_expect(received, S::kReceivedBytes);
}

// One block of the cluster takes the next tile for all.
template <class S>
__device__ __forceinline__ void take_tile(typename S::Shared& smem, const Params& p, int rank) {
  constexpr int kSplits = S::OwnTask::splits;
  if (rank == 0) {
    const uint32_t tile = atomicAdd(p.next_tile, 1U);
    for (uint32_t to = 0; to < kSplits; ++to) {
      ptx::store_async(ptx::cluster_address(ptx::shared_address(&smem.tile), to), tile,
                       ptx::cluster_address(ptx::shared_address(&smem.task.tile_here), to));
    }
  }
  ptx::mbarrier_wait_cluster(ptx::shared_address(&smem.task.tile_here), 0);
  typename S::OwnTask task{throughput::find_task<S>(p, smem.tile), rank};
  task.steps = steps_of(task.steps, kSplits, rank);
  static_cast<typename S::OwnTask&>(smem.task) = task;
}

template <class S>
__device__ __forceinline__ void consume(const Maps& maps, const Params& p) {
  typename S::Shared& smem = S::shared();
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  Consumer<S> c{.smem = smem,
                .params = p,
                .shared = ptx::shared_address(&smem),
                .group = ptx::uniform(thread / kWarpgroupThreads) - 1};
  // Each branch has its own exchange: sums that arrive by two paths would not stay in registers.
  if (smem.task.steps > 0) {
    c.run(smem.task.steps);
    Exchange<S>{c, maps}.run(c.dk, c.dv);
  } else {
    c.clear();
    Exchange<S>{c, maps}.run(c.dk, c.dv);
  }
}

// One thread copies, two others add.
template <class S>
__device__ __forceinline__ void produce(const Maps& maps, const Params& p) {
  typename S::Shared& smem = S::shared();
  const typename S::OwnTask& task = smem.task;
  const auto warp = static_cast<int>(threadIdx.x / throughput::kWarpThreads);
  if (threadIdx.x % throughput::kWarpThreads != 0 || task.steps == 0) return;
  if (warp == 0) {
    throughput::Producer<S> producer{
        .smem = smem, .maps = maps, .p = p, .task = task, .walk = throughput::Walk<S>(p, task)};
    producer.run();
  } else if (warp <= kConsumers) {
    const throughput::Adder<S> adder{.smem = smem, .p = p, .task = task, .group = warp - 1};
    adder.run();
  }
}

template <class S>
__device__ __forceinline__ void run_block(const Maps& maps, const Params& p) {
  typename S::Shared& smem = S::shared();
  const int rank = static_cast<int>(blockIdx.x) % S::OwnTask::splits;
  if (threadIdx.x == 0) split::make_barriers<S>(smem);
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  if (threadIdx.x == 0) take_tile<S>(smem, p, rank);
  __syncthreads();
  if (ptx::thread_index() < kWarpgroupThreads) {
    ptx::release_registers<throughput::kProducerRegisters>();
    split::produce<S>(maps, p);
  } else {
    ptx::acquire_registers<throughput::kConsumerRegisters>();
    split::consume<S>(maps, p);
  }
}

template <int kConfigIndex, class Element, int kSplits>
__global__ void __cluster_dims__(kSplits, 1, 1) __launch_bounds__(throughput::kThreads, 1)
    split_gradient_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  if constexpr (ptx::kHasWgmma) split::run_block<Shape<kConfigIndex, Element, kSplits>>(maps, p);
}

}  // namespace flashcore::cuda::backward_sm90::split
