// The parameters common to all forward kernels. Strides are in elements.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

// [batch, head, row, column] with contiguous columns; a packed tensor has batch stride 0.
struct RowMatrix {
  const void* data;
  int64_t batch, head, row;
};

// One int32 per sequence; absent if data is null. In device memory: never trusted, always clamped.
struct EntryVector {
  const int32_t* data;
  int64_t step;

  constexpr int32_t at(int64_t entry) const { return data[entry * step]; }
};

enum class Diagonal : int32_t { top_left, bottom_right, given };

struct ForwardParams {
  RowMatrix q, k, v;
  void* o;
  int64_t o_batch, o_head, o_row;
  float* lse;  // null: not requested
  int64_t lse_batch, lse_head, lse_row;

  int batch, heads_q, heads_kv;
  int seqlen_q, seqlen_kv;  // upper bounds of every sequence's lengths
  int total_q, total_kv;    // rows of packed tensors
  int head_dim_qk, head_dim_v;
  EntryVector cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;
  Diagonal diagonal;
  int64_t causal_offset;
};

}  // namespace flashcore::cuda::attention
