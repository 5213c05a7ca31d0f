// forward_sm80_throughput: one block per query tile, with instructions of sm_80 only.
//
//   find the tile | attend to its keys | proven right? store : recompute it exactly
#pragma once

#include "cuda/forward_sm80/throughput/epilogue.cuh"
#include "cuda/forward_sm80/throughput/mainloop.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Recomputes the tile with the online softmax and guarded values. Out of
// line: it almost never runs, and must not take registers from the main loop.
//
// block_q: queries per block; this call computes kConfig's tile from query `skip` on.
template <Config kConfig, class Element, Features kFeatures, class P>
__device__ __noinline__ void compute_exactly(const P& p, unsigned char* shared, int block_q,
                                             int skip) {
  bool found = false;
#pragma unroll 1
  for (const GuardPass pass : {GuardPass::values, GuardPass::kinds}) {
    Task task = find_task<kFeatures == Features::all>(p, ptx::block_index(), block_q);
    task.first_query += skip;
    WarpState<kConfig> w;
    const bool kinds = pass == GuardPass::kinds;
    found |= attend<kConfig, Element, kFeatures, Softmax::guarded>(p, task, shared, w, pass);
    finish_sums<kConfig, Element>(w, false);
    if (!kinds) finish_rows<kConfig, kFeatures>(p, task, w, p.score_unit);
    store_elements<kConfig>(p, task, shared, w, kinds);
    if (!__syncthreads_or(found)) break;
  }
}

// A kernel's parameter type, and the options that its tiles check.
template <Features kFeatures>
struct Told {
  using Type = Params;
  static constexpr Features kLooksFor = kFeatures;
};
template <>
struct Told<Features::all> {
  using Type = StateParams;
  static constexpr Features kLooksFor = Features::all;
};

template <>
struct Told<Features::logits> {
  using Type = LogitParams;
  static constexpr Features kLooksFor = Features::all;
};

template <>
struct Told<Features::fp8> {
  using Type = Fp8Params;
  static constexpr Features kLooksFor = Features::all;
};

template <>
struct Told<Features::paged> {
  using Type = PagedParams;
  static constexpr Features kLooksFor = Features::none;
};

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, Features kLevel>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(),
                                  kConfigs[kConfigIndex].blocks_per_sm)
    forward_kernel(const __grid_constant__ typename Told<kLevel>::Type p) {
  unsigned char* const shared = ptx::dynamic_shared();
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr Features kFeatures = Told<kLevel>::kLooksFor;
  constexpr Softmax kSoftmax = kFeatures == Features::all ? Softmax::online : Softmax::stale;
  WarpState<kConfig> w;
  bool wrong;
  {
    const Task task =
        find_task<kFeatures == Features::all>(p, ptx::block_index(), kConfig.block_q());
    if (task.first_query >= task.sequence.rows_q) return;
    // The result of a split past the last key is never read.
    if (kFeatures == Features::all && p.splits > 1 &&
        find_split(p, ptx::block_index()) * split_keys(task.sequence.len_kv) >=
            task.sequence.len_kv) {
      return;
    }
    wrong = attend<kConfig, Element, kFeatures, kSoftmax>(p, task, shared, w, GuardPass::values);
  }
  wrong = !finish_sums<kConfig, Element>(w, kSoftmax == Softmax::stale) || wrong;
  if constexpr (kFeatures == Features::scores)
    wrong = wrong || lost_bits<kConfig>(w, p.smallest_sum);
  if (__syncthreads_or(wrong)) {
    compute_exactly<kConfig, Element, kFeatures>(p, shared, kConfig.block_q(), 0);
    return;
  }
  const Task& task = block_task<kConfig>();
  finish_rows<kConfig, kFeatures>(p, task, w, kSoftmax == Softmax::stale ? kLn2 : p.score_unit);
  if constexpr (!kIsFp32<Element>) {
    if (kFeatures != Features::all || (p.o_vectors && p.splits == 1)) {
      if constexpr (kIsFp8<Element>) {
        if (p.o_type == ElementType::bf16) {
          store_vectors<kConfig, Bf16>(p, task, shared, w);
          return;
        }
      }
      store_vectors<kConfig, Element>(p, task, shared, w);
      return;
    }
  }
  if constexpr (kFeatures == Features::all) store_elements<kConfig>(p, task, shared, w, false);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
