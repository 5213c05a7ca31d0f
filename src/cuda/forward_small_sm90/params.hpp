// Everything that one launch of forward_small_sm90 is told. Strides are in elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/forward_small_sm90/split.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::forward_small_sm90 {

// [batch, head, row, column] with contiguous columns; a packed tensor has batch stride 0. Copies go
// by the maps; this is for what is read one by one.
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
  CUtensorMap q, k, v;
};

struct Params {
  Matrix q, k, v;
  void* o;
  int64_t o_batch, o_head, o_row;
  float* lse;  // null when not wanted
  int64_t lse_batch, lse_head, lse_row;

  int heads_per_kv_head;
  int seqlen_q, seqlen_kv;  // bounds of every entry's lengths
  int head_dim_qk, head_dim_v;
  float scale_log2;  // softmax_scale / ln 2, more than 0
  bool early;        // the launch may have begun before earlier grids have ended

  BandLimits limits;  // of every entry, unless `varies`

  bool varies;            // entries differ in what follows
  int total_q, total_kv;  // rows of packed tensors
  EntryVector cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;
  Band band;
  Diagonal diagonal;
  int64_t causal_offset;
};

}  // namespace flashcore::cuda::forward_small_sm90
