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

// What every block reads first is in one line of the constant cache: a launch finds it cold.
struct Params {
  int seqlen_q;  // bound of every entry's lengths
  int heads_per_kv_head;
  BandLimits limits;  // of every entry, unless `varies`
  bool varies;        // entries differ in lengths or diagonal
  float scale_log2;   // softmax_scale / ln 2, more than 0
  int head_dim_v;
  void* o;
  int64_t o_row;

  int64_t o_head, o_batch;
  float* lse;  // null when not wanted
  int64_t lse_row, lse_head, lse_batch;

  int seqlen_kv;
  int total_q, total_kv;  // rows of packed tensors
  int head_dim_qk;
  EntryVector cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;
  Band band;
  Diagonal diagonal;
  int64_t causal_offset;
  Matrix q, k, v;
};

}  // namespace flashcore::cuda::forward_small_sm90
