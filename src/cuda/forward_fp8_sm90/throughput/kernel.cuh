// forward_fp8_sm90: persistent blocks, a producer and consumers, on TMA, mbarriers and wgmma of e4m3
// (sm_90a). V comes transposed from the workspace (rows.cuh), or from the caller.
//
//   producer   tile t: | Q, K, K, V, ... |  tile t': | Q, K, ...      a ring or two ahead
//   consumer 0          | S | O, S | O, S | ... | O | store |  next tile ...
//   consumer 1             | S | O, S | ...
#pragma once

#include "cuda/forward_fp8_sm90/throughput/consumer.cuh"
#include "cuda/forward_fp8_sm90/throughput/epilogue.cuh"
#include "cuda/forward_fp8_sm90/throughput/producer.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// Recomputes this warp's rows one by one if the products cannot.
template <class S>
__device__ __forceinline__ void recompute_rows(const typename S::Params& p, const Consumer<S>& c) {
  compute_rows_exactly<S>(p, c.task(), c.first_row() + kWarpRows * c.warp(), c.lane());
}

template <class S>
__device__ __forceinline__ void end_tile(const typename S::Params& p, Consumer<S>& c) {
  const typename S::Task& task = c.task();
  RowEnd ends[2];
  end_rows<S>(p, c, task, ends);
  if (!store_rows<S>(p, task, c, ends)) recompute_rows<S>(p, c);
}

// A consumer's part of one tile. Each case has a separate path to the end:
// if accumulators of different products meet, ptxas runs short of registers.
template <class S>
__device__ __forceinline__ void consume_tile(const typename S::Params& p, Consumer<S>& c) {
  const typename S::Task& task = c.task();
  c.scale = score_scale(p, task, kLog2E);
  const int begin = task.begin, end = task.end;
  if (c.range.empty()) {
    c.pass_blocks(end - begin);
    c.clear();
    c.flushed_reference[0] = c.flushed_reference[1] = 0;  // nothing is to be recomputed
    end_tile<S>(p, c);
    return;
  }
  bool takes_scale = c.scale > 0;  // references are largest products
  if constexpr (S::kOptions) takes_scale = c.takes_scale();
  if (uniform(!takes_scale) != 0) {
    c.pass_blocks(end - begin);
    recompute_rows<S>(p, c);
    return;
  }
  c.pass_blocks(end - c.range.end);
  // The LSE, and a sink, need the sums of P before rounding.
  if (uniform(p.precise || task.has_few_keys(S::kBlockKeys)) != 0) {
    c.attend_in_two_terms();
    c.pass_blocks(c.range.begin - begin);
    end_tile<S>(p, c);
  } else if (S::kOptions && uniform(c.wants_largest()) != 0) {
    c.template attend<true, S::kOptions>();
    c.pass_blocks(c.range.begin - begin);
    end_tile<S>(p, c);
  } else if (!S::kConfig.spares_sums || uniform(p.lse != nullptr || p.sinks != nullptr) != 0) {
    c.template attend<true, false>();
    c.pass_blocks(c.range.begin - begin);
    end_tile<S>(p, c);
  } else {
    c.template attend<!S::kConfig.spares_sums, false>();
    c.pass_blocks(c.range.begin - begin);
    end_tile<S>(p, c);
  }
}

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& smem, const typename S::Params& p) {
  const auto thread = static_cast<uint32_t>(ptx::thread_index());
  Consumer<S> c{.smem = smem,
                .params = p,
                .shared = ptx::shared_address(&smem),
                .thread = thread,
                .group = static_cast<int>(ptx::uniform(thread / kWarpgroupThreads)) - 1};
  c.begin_descriptors();
  while (c.open_task()) {
    consume_tile<S>(p, c);
    c.release_q();
  }
}

template <class S>
__device__ __forceinline__ void make_barriers(typename S::Shared& smem) {
  constexpr int kConsumerWarps = kWarpgroupWarps * S::kConsumers;
  const auto make = [](uint64_t& full, uint64_t& empty) {
    ptx::mbarrier_init(ptx::shared_address(&full), 1);
    ptx::mbarrier_init(ptx::shared_address(&empty), kConsumerWarps);
  };
  for (int i = 0; i < S::kQSlots; ++i) make(smem.q_full[i], smem.q_empty[i]);
  for (int i = 0; i < S::kKStages; ++i) make(smem.k_full[i], smem.k_empty[i]);
  for (int i = 0; i < S::kVStages; ++i) make(smem.v_full[i], smem.v_empty[i]);
  ptx::mbarrier_init_fence();
}

// Sets the rows that follow V^T. All their elements are equal, so the swizzle does not matter.
template <class S>
__device__ __forceinline__ void make_ones(typename S::Shared& smem) {
  constexpr uint32_t kFourOnes = S::kE5M2 ? 0x3C3C3C3CU : 0x38383838U;
  constexpr int kWords = S::kConfig.ones_rows() * S::kBlockKeys / 4;
  for (int i = static_cast<int>(threadIdx.x); i < S::kVStages * kWords; i += S::kConfig.threads()) {
    *reinterpret_cast<uint32_t*>(&smem.v[i / kWords][S::kVCopied + i % kWords * 4]) = kFourOnes;
  }
  ptx::fence_proxy_async();
}

template <class S>
__device__ __forceinline__ void run_block(const Maps& maps, const typename S::Params& p) {
  auto& smem = *reinterpret_cast<typename S::Shared*>(ptx::dynamic_shared());
  if (threadIdx.x == 0) make_barriers<S>(smem);
  make_ones<S>(smem);
  __syncthreads();
  if (ptx::thread_index() < kWarpgroupThreads) {  // not kept: consumers need the registers
    ptx::release_registers<S::kConfig.producer_registers()>();
    if (ptx::thread_index() == 0) Producer<S>{.smem = smem, .maps = maps, .p = p}.run();
  } else {
    ptx::acquire_registers<S::kConfig.consumer_registers()>();
    consume<S>(smem, p);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kConfig.threads(), 1)
    forward_kernel(const __grid_constant__ Maps maps,
                   const __grid_constant__ typename S::Params p) {
  if constexpr (ptx::kHasWgmma) run_block<S>(maps, p);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
