// backward_sm80: one block per tile of rows, of queries for dQ and of keys for dK and dV.
//
//   find the tile | walk over the other side | finite? store : recompute it, guarded
//
// No two blocks write the same element, so the result is deterministic.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/gradients.cuh"
#include "cuda/backward_sm80/general/store.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::backward_sm80::general {

// Stores the rows' terms of dSinks and dSlopes.
template <Config kConfig>
__device__ __forceinline__ void store_row_terms(const Params& p, const Task& task,
                                                const Gradients<kConfig, Output::dq>& sums, int row,
                                                int lane) {
  if (p.d_sinks.data == nullptr && p.d_slopes.data == nullptr) return;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float distances = attention::quad_sum(sums.distances[slot]);
    const float sees = attention::quad_max(sums.sees[slot] ? 1.0F : 0.0F);
    const int query = task.first + row + 8 * slot;
    if (lane % 4 != 0 || query >= task.entry.len_q) continue;
    const int64_t number = row_number(p, task.entry, task.batch, task.head, query);
    if (p.d_slopes.data != nullptr) p.d_slopes.rows[number] = -distances;
    if (p.d_sinks.data == nullptr) continue;
    const float2 stats = p.rows[number];
    float term = 0;
    if (sees > 0) {
      const float sink = __ldg(p.sinks.data + task.head * p.sinks.head);
      term = -ptx::exp2_approx((sink - stats.x) * attention::kLog2E) * stats.y;
    } else if (p.d_lse != nullptr) {
      // In such a row, only the LSE depends on the sink; O does not.
      term = __ldg(p.d_lse + task.batch * p.d_lse_batch + task.head * p.d_lse_head +
                   (int64_t{task.entry.q_row} + query) * p.d_lse_row);
    }
    p.d_sinks.rows[number] = term;
  }
}

template <Config kConfig, Output kOutput, Features kFeatures>
__device__ __forceinline__ void store(const Params& p, const Task& task, unsigned char* shared,
                                      const Gradients<kConfig, kOutput>& sums, int thread,
                                      bool kinds) {
  constexpr bool kQueries = owns_queries(kOutput);
  static_assert(2 * kConfig.x_bytes() >= kConfig.block_x() * kConfig.head_dim * 4);
  const int warp = thread / 32, lane = thread % 32;
  float* const staging = reinterpret_cast<float*>(shared) + 16 * warp * kConfig.head_dim;
  if constexpr (has_first(kOutput)) {
    store_sums<kQueries>(p, task, kQueries ? p.dq : p.dk, sums.first, p.softmax_scale, staging,
                         16 * warp, lane, kinds);
  }
  if constexpr (has_second(kOutput)) {
    store_sums<kQueries>(p, task, p.dv, sums.second, 1, staging, 16 * warp, lane, kinds);
  }
  if constexpr (kOutput == Output::dq && kFeatures == Features::all) {
    if (!kinds) store_row_terms<kConfig>(p, task, sums, 16 * warp + lane / 4, lane);
  }
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, Output kOutput, Features kFeatures>
__global__ void __launch_bounds__(config_of(kConfigIndex, kFeatures).threads())
    gradient_kernel(const __grid_constant__ Params p) {
  constexpr Config kConfig = config_of(kConfigIndex, kFeatures);
  constexpr bool kQueries = owns_queries(kOutput);
  unsigned char* const shared = ptx::dynamic_shared();
  if constexpr (!kIsFp32<Element>) {  // after a joint kernel, only nonfinite results remain
    if (p.joint.not_finite != nullptr && *p.joint.not_finite == 0) return;
  }
  // Each pass recomputes everything, from values that it reloads: values common
  // to all passes would be kept in registers, which the walk does not have.
#pragma unroll 1
  for (Pass pass = Pass::plain;; pass = pass == Pass::plain ? Pass::values : Pass::kinds) {
    const Task task = find_task<kQueries>(p, kQueries ? p.by_queries : p.by_keys,
                                          ptx::block_index(), kConfig.block_x());
    const bool packed = p.cu_seqlens_q.data != nullptr;
    const int rows = packed ? length_of<kQueries>(task.entry) : kQueries ? p.seqlen_q : p.seqlen_kv;
    if (task.first >= rows) return;
    const int thread = ptx::thread_index();
    Gradients<kConfig, kOutput> sums;
    walk<kConfig, Element, kOutput, kFeatures>(p, task, shared, thread, sums, pass);
    const int row = thread / 32 * 16 + thread % 32 / 4;
    const int used = length_of<kQueries>(task.entry) - task.first;
    const bool finite = (!has_first(kOutput) || all_finite(sums.first, row, used)) &&
                        (!has_second(kOutput) || all_finite(sums.second, row, used));
    if (pass == Pass::plain && __syncthreads_or(!finite)) continue;
    store<kConfig, kOutput, kFeatures>(p, task, shared, sums, thread, pass == Pass::kinds);
    if (pass != Pass::values) return;
    __syncthreads();  // the next pass loads where rows were staged
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
