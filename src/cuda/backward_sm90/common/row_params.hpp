// What the launches of a backward pass are told of its rows. Strides are in elements.
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
  const float* d_lse;  // null: there is none
  int64_t d_lse_batch, d_lse_head, d_lse_row;
  Target dq, dk, dv;

  attention::BandLimits limits;
  int group;     // heads of queries that share a head of keys
  int q_blocks;  // of a head
  float scale_log2, scale;

  // The workspace: of each block of queries -LSE log2(e), then delta, of each query.
  float* notes;
};

}  // namespace flashcore::cuda::backward_sm90
