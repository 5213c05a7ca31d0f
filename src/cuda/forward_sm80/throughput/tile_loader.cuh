// Copies Q, and consecutive tiles of K and V, to shared memory.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Returns threadIdx.x, from a register if there is one to spare.
template <Config kConfig, Features kFeatures>
__device__ __forceinline__ int lane_source() {
  return kConfig.spares_registers(kFeatures) ? static_cast<int>(threadIdx.x) : ptx::thread_index();
}

// The start of the keys and values of a block's head, for code that recomputes addresses.
struct KvOrigin {
  const unsigned char *k, *v;
};

template <int kElementBytes>
__device__ __forceinline__ KvOrigin kv_origin(const Params& p, const Task& task, int /*block_q*/) {
  const int kv_head = kv_head_of(p, task.head);
  return {row_pointer<kElementBytes>(p.k, task.batch, kv_head, task.sequence.kv_begin),
          row_pointer<kElementBytes>(p.v, task.batch, kv_head, task.sequence.kv_begin)};
}

// Copies consecutive tiles of K and V of one head. Stored: the geometry of the tiles in
// memory.
template <Config kConfig, Features kFeatures, class Stored = Shape<kConfig>>
struct KvLoader {
  using S = Stored;
  using KCopy = typename S::template KCopy<key_order(kFeatures)>;
  using VCopy = typename S::template VCopy<key_order(kFeatures)>;
  const unsigned char *k, *v;
  int rows_left;

  __device__ __forceinline__ KvLoader(const Params& p, const KvOrigin& origin, int len_kv, int tile,
                                      int thread) {
    const int first = tile * S::kBlockKv;
    const int64_t k_row = S::kBytes * p.k.row, v_row = S::kBytes * p.v.row;
    k = KCopy::start(origin.k + first * k_row, k_row, thread);
    v = VCopy::start(origin.v + first * v_row, v_row, thread);
    rows_left = len_kv - first;
  }

  __device__ __forceinline__ void load(const Params& p, unsigned char* shared, int stage) {
    const int thread = lane_source<kConfig, kFeatures>();
    unsigned char* const k_tile = shared + S::k_offset(0) + stage * S::kStageBytes;
    unsigned char* const v_tile = k_tile + S::KTile::kBytes;
    if (p.whole_chunks && rows_left >= S::kBlockKv) {
      k = KCopy::whole(k_tile, k, p.k_pass_bytes, thread);
      v = VCopy::whole(v_tile, v, p.v_pass_bytes, thread);
    } else {
      if (kFeatures != Features::all || p.chunks_qk) {
        k = KCopy::part(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk / S::kChunkElements,
                        p.k.data, thread);
      } else {
        k = KCopy::elements(k_tile, k, p.k_pass_bytes, rows_left, p.head_dim_qk, thread);
      }
      if (kFeatures != Features::all || p.chunks_v) {
        v = VCopy::part(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v / S::kChunkElements,
                        p.v.data, thread);
      } else {
        v = VCopy::elements(v_tile, v, p.v_pass_bytes, rows_left, p.head_dim_v, thread);
      }
    }
    ptx::cp_async_commit();
    rows_left -= S::kBlockKv;
  }
};

template <Config kConfig, Features kFeatures>
__device__ __forceinline__ void load_queries(const Params& p, const Task& task,
                                             unsigned char* shared) {
  using S = Shape<kConfig>;
  using Copy = typename S::QCopy;
  const auto thread = static_cast<int>(threadIdx.x);
  const unsigned char* const source = Copy::start(
      row_pointer<S::kBytes>(p.q, task.batch, task.head, task.sequence.q_begin + task.first_query),
      S::kBytes * p.q.row, thread);
  const int rows = static_cast<int>(task.sequence.len_q) - task.first_query;
  // Only if there are registers for its addresses along with O.
  if (kConfig.spares_registers(kFeatures) && p.whole_chunks && rows >= S::kBlockQ) {
    Copy::whole(shared, source, p.q_pass_bytes, thread);
  } else if (kFeatures != Features::all || p.chunks_qk) {
    Copy::part(shared, source, p.q_pass_bytes, rows, p.head_dim_qk / S::kChunkElements, p.q.data,
               thread);
  } else {
    Copy::elements(shared, source, p.q_pass_bytes, rows, p.head_dim_qk, thread);
  }
  ptx::cp_async_commit();
}

}  // namespace flashcore::cuda::forward_sm80::throughput
