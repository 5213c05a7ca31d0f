// From a tile's number to what the consumers must know of it.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/params.hpp"
#include "cuda/forward_sm90/schedule.hpp"

namespace flashcore::cuda::forward_sm90 {

__device__ inline int entry(const EntryVector& vector, int b) {
  return vector.data[b * vector.step];
}

struct Rows {
  int begin, count;
};

// The rows of entry b in a packed tensor of `total` rows, at most `bound` of them, whatever
// cu_seqlens holds.
__device__ inline Rows packed_rows(const EntryVector& cu_seqlens, int b, int total, int bound) {
  const int begin = min(max(entry(cu_seqlens, b), 0), total);
  const int end = min(max(entry(cu_seqlens, b + 1), begin), total);
  return {begin, min(end - begin, bound)};
}

// Everything but the range of blocks.
__device__ __forceinline__ TaskInfo find_task(const Params& p, uint32_t index, int block_q) {
  const TileOrder::Place place = p.order.at(index);
  TaskInfo task;
  task.batch = static_cast<int>(place.batch_head / static_cast<uint32_t>(p.heads_q));
  task.head = static_cast<int>(place.batch_head) - task.batch * p.heads_q;
  task.first_query = static_cast<int>(place.q_tile) * block_q;
  task.q_row = task.first_query;
  task.kv_row = 0;
  task.len_q = task.rows_q = p.seqlen_q;
  int len_kv = p.seqlen_kv;
  if (p.cu_seqlens_q.data != nullptr) {
    const Rows q = packed_rows(p.cu_seqlens_q, task.batch, p.total_q, p.seqlen_q);
    const Rows kv = packed_rows(p.cu_seqlens_kv, task.batch, p.total_kv, p.seqlen_kv);
    task.q_row += q.begin;
    task.len_q = task.rows_q = q.count;
    task.kv_row = kv.begin;
    len_kv = kv.count;
  }
  if (p.seqlens_q.data != nullptr)
    task.len_q = min(task.len_q, max(entry(p.seqlens_q, task.batch), 0));
  if (p.seqlens_kv.data != nullptr) len_kv = min(len_kv, max(entry(p.seqlens_kv, task.batch), 0));
  int64_t offset = 0;
  if (p.diagonal == Diagonal::bottom_right) {
    offset = len_kv - task.len_q;
  } else if (p.diagonal == Diagonal::given) {
    offset =
        p.causal_offsets.data != nullptr ? entry(p.causal_offsets, task.batch) : p.causal_offset;
  }
  if (p.cu_seqlens_q.data != nullptr) task.batch = 0;  // packed tensors have no batch
  task.limits = band_limits(p.left, p.right, offset, len_kv);
  return task;
}

}  // namespace flashcore::cuda::forward_sm90
