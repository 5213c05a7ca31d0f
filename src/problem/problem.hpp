// A problem as every backend reads it: validated, defaults filled in, strides of one shape.
#pragma once

#include <cstdint>

#include "flashcore/flashcore.hpp"
#include "problem/visibility.hpp"

namespace flashcore {

// Element strides of [batch, head, row] with a contiguous last dimension. Packed: batch is 0.
struct RowStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;

  constexpr int64_t at(int64_t b, int64_t h, int64_t r) const {
    return b * batch + h * head + r * row;
  }
};

// An optional [B, H, Sq, Skv] input; broadcast dimensions have stride 0.
struct PairInput {
  bool present = false;
  DType dtype = DType::f32;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  int64_t key = 0;

  constexpr int64_t at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return b * batch + h * head + i * query + j * key;
  }
};

// An optional [B, H, blocks of keys] fp32 scale; broadcast dimensions have stride 0.
struct ScaleInput {
  bool present = false;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t block = 0;

  constexpr int64_t at(int64_t b, int64_t h, int64_t n) const {
    return b * batch + h * head + n * block;
  }
};

// An optional input with one element per head, per batch entry and head, or per batch entry.
struct VectorInput {
  bool present = false;
  int64_t batch = 0;
  int64_t head = 0;

  constexpr int64_t at(int64_t b, int64_t h) const { return b * batch + h * head; }
};

struct ForwardProblem {
  DType dtype = DType::f32;  // of Q, K and V
  DType o_dtype = DType::f32;
  DType lse_dtype = DType::f32;

  bool packed = false;
  int64_t batch = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t seqlen_q = 0;   // packed: an upper bound of every entry's
  int64_t seqlen_kv = 0;  // likewise
  int64_t total_q = 0;    // packed only: rows of Q
  int64_t total_kv = 0;
  int64_t head_dim_qk = 0;
  int64_t head_dim_v = 0;

  RowStrides q, k, v, o, lse;  // lse: row stride is between queries; nothing is contiguous
  bool has_lse = false;
  PairInput bias, mask;
  VectorInput alibi_slopes, sinks, q_scale;
  VectorInput cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;
  VectorInput dropout_state;  // seed and offset; present only with dropout
  ScaleInput k_scale, v_scale;
  int64_t kv_scale_block = 0;  // at least 1

  float softmax_scale = 1;
  float softcap = 0;
  Band band;  // causal and window together
  Alignment alignment = Alignment::bottom_right;
  int64_t causal_offset = 0;
  float dropout_p = 0;

  constexpr int64_t kv_head(int64_t head_q) const { return head_q / (heads_q / heads_kv); }
};

// Checks everything that can be known without data and resolves it.
Result<ForwardProblem> resolve(const Problem& problem);

// Checks the pointers of a run: null, alignment to the element, outputs that are also inputs.
Status check_pointers(const ForwardProblem& problem, const Arguments& arguments);

// Checks the contents of lengths and offsets; only where the host can read them.
Status check_lengths(const ForwardProblem& problem, const Arguments& arguments);

// Batch entry b of a run whose lengths the host can read (after check_lengths).
Sequence sequence_of(const ForwardProblem& problem, const Arguments& arguments, int64_t b);

}  // namespace flashcore
