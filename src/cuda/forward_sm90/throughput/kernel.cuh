// forward_sm90_throughput: persistent blocks, a producer and consumers, on TMA, mbarriers and wgmma
// (sm_90a).
//
//   producer   tile t: | K, Q, K, V, ... |  tile t': | K, Q, ...      a ring or two ahead
//   consumer 0          | S | O, S | O, S | ... | O | store |  next tile ...
//   consumer 1             | S | O, S | ...
#pragma once

#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/forward_sm90/throughput/consumer.cuh"
#include "cuda/forward_sm90/throughput/epilogue.cuh"
#include "cuda/forward_sm90/throughput/finder.cuh"
#include "cuda/forward_sm90/throughput/paged_producer.cuh"
#include "cuda/forward_sm90/throughput/producer.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;

// Stores O of this warp's rows.
template <class S>
__device__ __forceinline__ void end_tile(const CUtensorMap& map, const typename S::KernelParams& p,
                                         const TaskInfo& task, Consumer<S>& c,
                                         const RowEnd (&ends)[2]) {
  const TaskOptions* options = nullptr;
  if constexpr (S::kOptions) {
    accept_rows_without_keys(c);
    options = &c.options();
  }
  if (!store_rows<S>(map, p, task, c, ends)) {
    compute_rows_exactly<S>(p, task, c.in_table(), options, c.first_row() + 16 * c.warp(),
                            c.lane());
  }
}

// A consumer's part of one tile, if its rows see some block.
template <class S>
__device__ __forceinline__ void attend(const CUtensorMap& map, const typename S::KernelParams& p,
                                       Consumer<S>& c) {
  const TaskInfo& task = c.task();
#pragma unroll 1
  for (int i = c.passes_before(); i > 0; --i) c.pass_block(true);
  int left = c.range.end - 1;
  c.first_block(left);
#pragma unroll 1
  while (left > 0) c.next_block(--left);
  if constexpr (!S::kStagesOutputs) c.release_q();
  const int after = c.passes_after();
  RowEnd ends[2];
  c.last_product([&] { end_rows<S>(p, c, task, ends); });
#pragma unroll 1
  for (int i = after; i > 0; --i) c.pass_block(true);
  if constexpr (S::kStagesOutputs) c.wait_for_warps();  // all four are done with Q
  end_tile<S>(map, p, task, c, ends);
}

// Handles a tile whose queries see no key. A separate path to the end: if
// accumulators of products and cleared ones meet, ptxas runs short of registers.
template <class S>
__device__ __forceinline__ void pass_tile(const CUtensorMap& map, const typename S::KernelParams& p,
                                          Consumer<S>& c) {
  const TaskInfo& task = c.task();
  c.release_q();
#pragma unroll 1
  for (int i = uniform(task.end - task.begin), taken = 0; taken < i; ++taken) {
    c.pass_block(taken != 0);
  }
  RowEnd ends[2];
  c.clear();
  end_rows<S>(p, c, task, ends);
  c.reference[0] = c.reference[1] = 0;  // nothing is to be recomputed
  end_tile<S>(map, p, task, c, ends);
}

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& smem, const CUtensorMap& map,
                                        const typename S::KernelParams& p) {
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  Consumer<S> c{.smem = smem,
                .params = p,
                .shared = ptx::shared_address(&smem),
                .thread = thread,
                .group = static_cast<int>(ptx::uniform(thread / kWarpgroupThreads)) - 1};
  c.begin_descriptors();
  c.begin_turns();
  while (c.open_task()) {
    if (c.range.empty()) {
      pass_tile<S>(map, p, c);
    } else {
      attend<S>(map, p, c);
    }
    c.q_at.next();
  }
  if constexpr (S::kStagesOutputs) ptx::tma_store_wait_read<0>();
}

template <class S>
__device__ __forceinline__ typename S::Shared& shared_memory() {
  return *reinterpret_cast<typename S::Shared*>(ptx::dynamic_shared());
}

// Tensor maps are not in the descriptor cache at launch; this prefetches them.
__device__ __forceinline__ void prefetch_maps(const Maps& maps) {
  ptx::prefetch_tensor_map(&maps.k);
  ptx::prefetch_tensor_map(&maps.q);
  ptx::prefetch_tensor_map(&maps.v);
  ptx::prefetch_tensor_map(&maps.o);
}
__device__ __forceinline__ void prefetch_maps(const OptionMaps& maps) {
  prefetch_maps(static_cast<const Maps&>(maps));
  ptx::prefetch_tensor_map(&maps.bias);
}

// Initialises the barriers that the first copies use.
template <class S>
__device__ __forceinline__ void make_first_barriers(typename S::Shared& smem) {
  for (int slot = 0; slot < S::kQSlots; ++slot) {
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_init(ptx::shared_address(&smem.q_full[slot][w]), 1);
    }
  }
  for (int slot = 0; slot < S::kStages; ++slot) {
    ptx::mbarrier_init(ptx::shared_address(&smem.k_full[slot]), 1);
  }
  ptx::mbarrier_init_fence();
}
template <class S>
__device__ __forceinline__ void make_other_barriers(typename S::Shared& smem) {
  constexpr int kConsumerWarps = kWarpgroupWarps * S::kConsumers;
  for (int slot = 0; slot < S::kQSlots; ++slot) {
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_init(ptx::shared_address(&smem.q_empty[slot][w]), kWarpgroupWarps);
    }
  }
  for (int slot = 0; slot < S::kStages; ++slot) {
    ptx::mbarrier_init(ptx::shared_address(&smem.v_full[slot]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.k_empty[slot]), kConsumerWarps);
    ptx::mbarrier_init(ptx::shared_address(&smem.v_empty[slot]), kConsumerWarps);
  }
  if constexpr (S::kOptions) {
    for (int w = 0; w < S::kConsumers; ++w) {
      ptx::mbarrier_init(ptx::shared_address(&smem.options.full[w]), 1);
      ptx::mbarrier_init(ptx::shared_address(&smem.options.empty[w]), kWarpgroupWarps);
    }
  }
  ptx::mbarrier_init(ptx::shared_address(&smem.task_wanted), S::kPaged ? kPageWarps : 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.task_found), 1);
  ptx::mbarrier_init_fence();
}

// The producer's warpgroup. Before the block's first barrier, each
// of its warps prepares a part of the first product's inputs:
//
//   warp 0   other barriers            | producer
//   warp 1   the first tile | first K  | finder
//   warp 2   first barriers | first Q  |
//   warp 3   tensor maps               |
//
// With pages, three warps copy instead, from here on (paged_producer.cuh).
//
// Warps meet at one instruction, or arrive at it: synccheck reports two as divergence.
template <class S>
__device__ __forceinline__ void produce(const typename S::KernelMaps& maps,
                                        const typename S::KernelParams& p) {
  typename S::Shared& smem = shared_memory<S>();
  const int warp = static_cast<int>(threadIdx.x / kWarpThreads);
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  Finder<S> finder{.smem = smem, .p = p, .lane = lane};
  if (warp == 0) {
    if (lane == 0) make_other_barriers<S>(smem);
  } else if (warp == 1) {
    finder.find_first();
  } else if (warp == 2) {
    if (lane == 0) make_first_barriers<S>(smem);
  } else if (lane == 0) {
    prefetch_maps(maps);
  }
  __syncwarp();
  ptx::named_barrier_sync(kFirstBarrier, kWarpgroupThreads);
  ptx::named_barrier_arrive(kMeetBarrier, S::kConfig.threads());
  [[maybe_unused]] Producer<S> producer{.smem = smem, .maps = maps};
  if constexpr (S::kOptions) producer.copies_bias = p.bias.data != nullptr;
  if constexpr (!S::kPaged) {
    if (lane == 0 && warp == 1) producer.start_k();
    if (lane == 0 && warp == 2) producer.start_q();
    __syncwarp();
  }
  ptx::release_registers<S::kConfig.producer_registers()>();
  if constexpr (S::kPaged) {
    produce_pages<S>(smem, maps, p);
  } else {
    if (warp == 0 && lane == 0) producer.run(p.counter != nullptr);
  }
  // With pages, the index is read again rather than held.
  if ((S::kPaged ? ptx::thread_index() / kWarpThreads : warp) == 1) finder.find_others();
}

template <class S>
__device__ __forceinline__ void run_block(const typename S::KernelMaps& maps,
                                          const typename S::KernelParams& p) {
  if (ptx::thread_index() < kWarpgroupThreads) {  // not kept: consumers need the registers
    produce<S>(maps, p);
  } else {
    ptx::named_barrier_sync(kMeetBarrier, S::kConfig.threads());
    ptx::acquire_registers<S::kConfig.consumer_registers()>();
    consume<S>(shared_memory<S>(), maps.o, p);
  }
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, bool kFeatures>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(),
                                  kConfigs[kConfigIndex].blocks_per_sm)
    forward_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  if constexpr (ptx::kHasWgmma) run_block<Shape<kConfigIndex, Element, kFeatures>>(maps, p);
}

// The kernel for paged keys and values.
template <int kConfigIndex, class Element, bool kFeatures>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(),
                                  kConfigs[kConfigIndex].blocks_per_sm)
    paged_kernel(const __grid_constant__ Maps maps, const __grid_constant__ PagedParams p) {
  if constexpr (ptx::kHasWgmma)
    run_block<Shape<kConfigIndex, Element, kFeatures, Kind::paged>>(maps, p);
}

// The kernel with options of pairs, for a row of kOptionConfigs.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kOptionConfigs[kConfigIndex].threads(),
                                  kOptionConfigs[kConfigIndex].blocks_per_sm)
    option_kernel(const __grid_constant__ OptionMaps maps, const __grid_constant__ OptionParams p) {
  if constexpr (ptx::kHasWgmma)
    run_block<Shape<kConfigIndex, Element, false, Kind::options>>(maps, p);
}

}  // namespace flashcore::cuda::forward_sm90::throughput
