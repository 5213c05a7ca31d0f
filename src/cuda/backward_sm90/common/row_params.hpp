// Row parameters of a backward pass's launches. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::backward_sm90 {

// Kernels by rows: threads and warps of a block, and numbers of a row that a lane has.
inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32, kLaneDims = 8;

// A matrix of 16-bit numbers in rows of aligned 16-byte chunks that is written.
struct Target {
  void* data;
  int64_t batch, head, row;
};

struct RowParams : attention::ForwardParams {
  attention::RowMatrix d_o;
  const float* d_lse;  // null: none
  int64_t d_lse_batch, d_lse_head, d_lse_row;
  Target dq, dk, dv;

  attention::BandLimits limits;
  int group;     // query heads per KV head
  int q_blocks;  // per head
  float scale_log2, scale;

  // The workspace: for each block of queries, -LSE log2(e) of each query, then delta of each.
  float* row_stats;
};

}  // namespace flashcore::cuda::backward_sm90
