// Everything that one launch of forward_sm90 is told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/forward_sm90/schedule.hpp"

namespace flashcore::cuda::forward_sm90 {

// [batch, head, row, column] with contiguous columns; a packed tensor has batch stride 0. TMA goes
// by the maps; this is for what it cannot do.
struct Matrix {
  const void* data;
  int64_t batch, head, row;
};

// One int32 a batch entry; absent when data is null. Device memory: never trusted, always clamped.
struct EntryVector {
  const int32_t* data;
  int64_t step;
};

enum class Diagonal : int32_t { top_left, bottom_right, given };

struct Maps {
  CUtensorMap q, k, v, o;
};

struct Params {
  Matrix q, k, v;
  void* o;
  int64_t o_batch, o_head, o_row;
  float* lse;  // null when not wanted
  int64_t lse_batch, lse_head, lse_row;

  int heads_q, heads_kv;
  int seqlen_q, seqlen_kv;  // bounds of every entry's lengths
  int total_q, total_kv;    // rows of packed tensors
  int head_dim_qk, head_dim_v;
  EntryVector cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;

  // The band: unlimited sides are negative, others at most 2^32.
  int64_t left, right;
  Diagonal diagonal;
  int64_t causal_offset;

  // Scores to units of log2. The instances with features take the softcap first: cap * tanh(x) is
  // softcap_log2 * (1 - 2 / (1 + 2^(score * softcap_rate))).
  float scale_log2;
  float softcap_log2;  // 0: off
  float softcap_rate;
  const float* sinks;  // one a head; null when there are none
  int64_t sinks_step;

  TileOrder order;
  unsigned long long* counter;  // of tiles handed out; null: block b takes b, b + blocks, ...
  uint32_t launch_name;         // what says that the counter is this plan's
};

}  // namespace flashcore::cuda::forward_sm90
