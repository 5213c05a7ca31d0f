// A problem in the form that every backend reads: validated, defaults filled in, uniform strides.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>

#include "flashcore/flashcore.hpp"
#include "problem/transposed.hpp"
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

// An optional fp32 output of the largest values, [B, H]. A broadcast dimension has stride 0, and
// the element is the largest value over that dimension.
struct LargestOutput {
  bool present = false;
  int64_t batches = 0;  // extents of the tensor
  int64_t heads = 0;
  int64_t batch = 0;  // strides
  int64_t head = 0;

  constexpr int64_t at(int64_t b, int64_t h) const { return b * batch + h * head; }
};

// K and V in pages: the page geometry, and where an entry's pages are listed.
struct Paging {
  bool present = false;
  bool flat = false;        // true: listed in kv_indices, from kv_indptr on
  int64_t num_pages = 0;    // pages in K and V
  int64_t page_size = 1;    // rows per page
  int64_t table_pages = 0;  // columns of page_table, or elements of kv_indices
  int64_t table_batch = 0;  // strides
  int64_t table_page = 0;
};

// Packed bits, one row of words for each query.
struct TreeMask {
  bool present = false;
  int64_t batch = 0;  // strides; packed: batch is 0
  int64_t query = 0;
  int64_t word = 0;
  int64_t words = 0;
};

struct ForwardProblem {
  DType dtype = DType::f32;    // Q's dtype
  DType k_dtype = DType::f32;  // Q's dtype, or fp8
  DType v_dtype = DType::f32;  // K's dtype, or the other fp8 type
  DType o_dtype = DType::f32;
  DType lse_dtype = DType::f32;

  bool packed = false;
  int64_t batch = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t seqlen_q = 0;   // packed: an upper bound for all entries
  int64_t seqlen_kv = 0;  // packed or in pages: an upper bound, too
  int64_t total_q = 0;    // packed only: rows of Q
  int64_t total_kv = 0;
  int64_t head_dim_qk = 0;
  int64_t head_dim_v = 0;

  // lse.row is between queries; nothing is contiguous. k and v in pages: batch is the page
  RowStrides q, k, v, o, lse;
  bool has_lse = false;
  PairInput bias, mask;
  VectorInput alibi_slopes, sinks, q_scale;
  VectorInput cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;
  VectorInput dropout_state;    // seed and offset; present only with dropout
  ScaleInput k_scale, v_scale;  // in pages: batch is the page
  int64_t kv_scale_block = 0;   // at least 1
  Paging paging;
  VectorInput kv_indptr, kv_last_page_len, cache_leftpad, page_status;
  TreeMask tree_mask;
  bool v_transposed = false;  // V is [batch, head, Dv, v_columns]: v.row is between dimensions
  int64_t v_columns = 0;
  VectorInput o_scale;
  LargestOutput amax_o, amax_s, max_logit;

  float softmax_scale = 1;
  float softcap = 0;
  Band band;  // causal and window together
  Alignment alignment = Alignment::bottom_right;
  int64_t causal_offset = 0;
  float dropout_p = 0;

  // Returns whether Q, K and V contain both e4m3 and e5m2.
  constexpr bool mixes_fp8() const {
    const bool narrow = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
    return v_dtype != k_dtype || (narrow && k_dtype != dtype);
  }
  // softmax_scale for powers of 2 instead of e.
  constexpr double scale_log2() const { return softmax_scale * std::numbers::log2e; }
  constexpr bool scale_is_positive() const { return softmax_scale > 0; }  // not for NaN
  // Returns whether entries follow each other in K and V, at the offsets in cu_seqlens_kv.
  constexpr bool packed_kv() const { return packed && !paging.present; }
  // The offset of element d of V's row `row`.
  constexpr int64_t v_at(int64_t lead, int64_t head, int64_t row, int64_t d) const {
    if (v_transposed) return v.at(lead, head, d) + column_of_key(row);
    return v.at(lead, head, row) + d;
  }
  constexpr int64_t kv_head(int64_t head_q) const { return head_q / (heads_q / heads_kv); }
};

// Checks everything that can be known without data and resolves it.
Result<ForwardProblem> resolve(const Problem& problem);

// Checks the contents of lengths and offsets; only if the host can read them.
Status check_lengths(const ForwardProblem& problem, const Arguments& arguments);

// Checks the pages that a run reads; only if the host can read the table. An index out of range is
// an error; with a page status it sets the status to 1 instead.
Status check_pages(const ForwardProblem& problem, const Arguments& arguments);

// Checks the scales that O is divided by; only if the host can read them.
Status check_o_scale(const ForwardProblem& problem, const Arguments& arguments);

// Batch entry b of a run whose lengths the host can read (after check_lengths).
Sequence sequence_of(const ForwardProblem& problem, const Arguments& arguments, int64_t b);

// The outputs of largest values, which only a forward pass writes.
struct LargestValue {
  const char* name;
  const char* flag;  // of the command
  std::optional<TensorDesc> Problem::*tensor;
  LargestOutput ForwardProblem::*output;
  float* Arguments::*data;
  float least = 0;  // the element of rows that see no key
};
inline constexpr std::array kLargestOutputs = {
    LargestValue{"amax_o", "--amax", &Problem::amax_o, &ForwardProblem::amax_o, &Arguments::amax_o},
    LargestValue{"amax_s", "--amax", &Problem::amax_s, &ForwardProblem::amax_s, &Arguments::amax_s},
    LargestValue{"max_logit", "--max-logit", &Problem::max_logit, &ForwardProblem::max_logit,
                 &Arguments::max_logit, -std::numeric_limits<float>::infinity()}};

}  // namespace flashcore
