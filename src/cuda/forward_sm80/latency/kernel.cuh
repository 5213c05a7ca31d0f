// forward_sm80_latency: one block computes 32 queries, and its warps split the keys.
// It uses instructions of sm_80 only, and is for problems that do not fill the GPU.
//
//   warp w   | copy Q (all), own K, own V | wait K | S = Q K^T | max, P = 2^S | wait V | O += P V |
//            ... repeated for further passes if there are more keys than the block holds ...
//   block    | partial O and log-sum-exp to shared memory | barrier | each thread adds up its
//            outputs | store
//
// attention/latency defines a problem's lengths, limits and exact fallback.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/latency/attend.cuh"
#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/copies.cuh"
#include "cuda/forward_sm80/latency/keys.hpp"
#include "cuda/forward_sm80/latency/merge.cuh"
#include "cuda/forward_sm80/latency/params.hpp"
#include "cuda/forward_sm80/latency/shape.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::latency {

// Starts the first copies of a block whose tiles are all whole, with as little as possible
// before them: everything else about the block is computed while the copies are in flight.
template <class S>
__device__ __forceinline__ void start_whole(const Params& p, uint32_t memory, int first_query,
                                            int warp, int lane) {
  constexpr int kThreads = S::kConfig.threads();
  using Tile = typename S::QTile;
  const uint32_t head = blockIdx.y, batch = blockIdx.z;
  const auto group = static_cast<uint32_t>(p.problem.heads_per_kv_head);
  const uint32_t kv_head = group == 1 ? head : head / group;
  const uint32_t row = threadIdx.x / 8, piece = threadIdx.x % 8;
  const Pieces& q = p.whole.q;
  copy_whole<Tile, kThreads, 0, Tile::kRows>(
      memory + Tile::chunk_offset(static_cast<int>(row), static_cast<int>(piece)),
      static_cast<const uint4*>(q.data) +
          (q.at(batch, head, static_cast<uint32_t>(first_query) + row) + piece),
      q.row);
  ptx::cp_async_commit();
  const int first_key = warp * S::kWarpKeys;
  if (first_key < whole_end(p.problem.limits, first_query)) {
    load_whole<S>(p.whole, memory + S::kConfig.q_bytes() + warp * 2 * S::kConfig.kv_bytes(),
                  static_cast<int>(batch), static_cast<int>(kv_head), first_key, lane);
  }
}

// Starts them if tiles are not whole.
template <class S>
__device__ __forceinline__ void start_rows(const attention::latency::Params& p, const Task& task,
                                           unsigned char* memory, unsigned char* own,
                                           const KeySpan& keys, int first_key, int thread) {
  using Tile = typename S::QTile;
  if (keys.begin < keys.end) {
    const uint16_t* q = attention::latency::row_pointer(p.q, task.batch, task.head,
                                                        int64_t{task.q_row} + task.first_query);
    copy_rows<Tile, S::kConfig.threads(), 0, Tile::kRows>(
        memory, q, p.q.row, task.len_q - task.first_query, p.head_dim_qk, p.q.data, thread);
  }
  ptx::cp_async_commit();
  if (first_key < keys.end) load_rows<S>(p, task, own, first_key, thread % 32);
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, bool kWhole>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(), 1)
    forward_latency_kernel(const __grid_constant__ Params p) {
  using S = Shape<kConfigIndex, Element, kWhole>;
  constexpr Config kConfig = S::kConfig;
  unsigned char* const memory = ptx::dynamic_shared();
  auto& rows = ptx::static_shared<typename S::Rows>();
  const unsigned its_thread = threadIdx.x;
  const auto thread = static_cast<int>(its_thread);
  const auto warp = static_cast<int>(its_thread / 32), lane = static_cast<int>(its_thread % 32);
  // Tiles of late queries run first: under a causal mask they see the most keys.
  const int tile = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  const int first_query = tile * kBlockQ;
  const uint32_t shared = ptx::shared_address(memory);
  if constexpr (kWhole) start_whole<S>(p, shared, first_query, warp, lane);

  const Task task = attention::latency::find_task_at<!kWhole>(p.problem, first_query, kBlockQ);
  if (!task.exists()) return;
  const KeySpan keys = key_span(task.tiles, task.limits.len_kv);
  const int first_key = keys.begin + warp * S::kWarpKeys;
  const int own = kConfig.q_bytes() + warp * 2 * kConfig.kv_bytes();
  if constexpr (!kWhole) {
    start_rows<S>(p.problem, task, memory, memory + own, keys, first_key, thread);
  }
  Place<S> place;
  if constexpr (kWhole) place.find(p.problem, task, thread);
  const bool active = first_key < keys.end;
  if (active) {
    ptx::cp_async_wait<2 * kGroups>();  // this thread's part of Q
  } else {
    ptx::cp_async_wait<0>();
  }
  __syncthreads();
  if (active) {
    Partial<S> w;
    const Warp<S> share{p, task, memory + own, shared, shared + static_cast<uint32_t>(own), lane};
    share.attend(w, first_key, keys.end);
    leave_partial<S>(share.k_tile, rows, w, warp, lane);
  }
  __syncthreads();
  if constexpr (!kWhole) place.find(p.problem, task, thread);
  merge<S>(p.problem, task, place, shared + kConfig.q_bytes(), rows,
           (keys.end - keys.begin + S::kWarpKeys - 1) / S::kWarpKeys, thread);
}

}  // namespace flashcore::cuda::forward_sm80::latency
