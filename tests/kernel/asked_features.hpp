// A problem for each feature that a kernel may not have, and the sentence of its refusal.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "problem/backward.hpp"
#include "problem/features.hpp"

namespace flashcore::tests {

inline RowStrides dense(int64_t heads, int64_t rows, int64_t head_dim) {
  return {heads * rows * head_dim, rows * head_dim, head_dim};
}

// Attention over f16 without features.
inline BackwardProblem plain() {
  BackwardProblem problem;
  ForwardProblem& p = problem.forward;
  p.dtype = p.k_dtype = p.v_dtype = p.o_dtype = DType::f16;
  problem.dq_dtype = problem.dk_dtype = problem.dv_dtype = DType::f16;
  p.batch = 2, p.heads_q = p.heads_kv = 4, p.seqlen_q = 33, p.seqlen_kv = 57;
  p.head_dim_qk = p.head_dim_v = 64;
  p.q = p.o = problem.d_o = problem.dq = dense(4, 33, 64);
  p.k = p.v = problem.dk = problem.dv = dense(4, 57, 64);
  p.has_lse = true;
  p.softmax_scale = 0.125F;
  p.kv_scale_block = 57;
  return problem;
}

struct Asked {
  Feature feature;
  std::function<void(BackwardProblem&)> ask;
  std::string_view sentence;
};

// Changes a forward problem.
inline std::function<void(BackwardProblem&)> of(void (*ask)(ForwardProblem&)) {
  return [ask](BackwardProblem& problem) { ask(problem.forward); };
}
using P = ForwardProblem&;

inline const std::vector<Asked>& asked_features() {
  using enum Feature;
  static const std::vector<Asked> all = {
      {lse_of_f64, of([](P p) { p.lse_dtype = DType::f64; }), "lse: dtype is f64, wanted f32"},
      {o_apart, of([](P p) { p.o_dtype = DType::f32; }), "o: dtype is f32, wanted q's f16"},
      {narrow_kv, of([](P p) { p.k_dtype = p.v_dtype = DType::f8e4m3; }),
       "k: dtype is f8e4m3, wanted q's f16"},
      {k_apart,
       [](BackwardProblem& problem) {
         problem.forward.dtype = problem.forward.o_dtype = DType::f8e4m3;
         problem.dq_dtype = problem.dk_dtype = problem.dv_dtype = DType::f8e4m3;
         problem.forward.k_dtype = problem.forward.v_dtype = DType::f8e5m2;
       },
       "k: dtype is f8e5m2, wanted q's f8e4m3"},
      {v_apart, of([](P p) { p.v_dtype = DType::bf16; }), "v: dtype is bf16, wanted k's f16"},
      {packed, of([](P p) { p.packed = true, p.total_q = p.total_kv = 9; }),
       "cu_seqlens_q: is given, wanted a batch that is not packed"},
      {seqlens_q, of([](P p) { p.seqlens_q.present = true; }), "seqlens_q: is given, wanted none"},
      {seqlens_kv, of([](P p) { p.seqlens_kv.present = true; }),
       "seqlens_kv: is given, wanted none"},
      {causal_offsets, of([](P p) { p.causal_offsets.present = true; }),
       "causal_offsets: is given, wanted none"},
      {v_head_dim, of([](P p) { p.head_dim_v = 128; }), "v: head dimension is 128, wanted q's 64"},
      {grouped_heads, of([](P p) { p.heads_kv = 2; }), "k: has 2 heads, wanted q's 4"},
      {window_left, of([](P p) { p.band.left = 8; }), "window_left: is 8, wanted -1 (no limit)"},
      {window_right, of([](P p) { p.band.right = 8; }),
       "window_right: is 8, wanted -1 (no limit) or 0 (causal)"},
      {page_table, of([](P p) { p.paging.present = true, p.paging.num_pages = 9; }),
       "page_table: is given, wanted keys and values in one piece"},
      {kv_indices, of([](P p) { p.paging.present = p.paging.flat = true; }),
       "kv_indices: is given, wanted keys and values in one piece"},
      {cache_leftpad, of([](P p) { p.cache_leftpad.present = true; }),
       "cache_leftpad: is given, wanted keys from the first row"},
      {v_transposed, of([](P p) { p.v_transposed = true; }),
       "v_transposed: is given, wanted V in rows of keys"},
      {tree_mask, of([](P p) { p.tree_mask.present = true; }),
       "tree_mask: is given, wanted a mask of pairs"},
      {bias, of([](P p) { p.bias.present = true; }), "bias: is given, wanted none"},
      {mask, of([](P p) { p.mask.present = true; }), "mask: is given, wanted none"},
      {alibi_slopes, of([](P p) { p.alibi_slopes.present = true; }),
       "alibi_slopes: is given, wanted none"},
      {sinks, of([](P p) { p.sinks.present = true; }), "sinks: is given, wanted none"},
      {softcap, of([](P p) { p.softcap = 30; }), "softcap: is 30, wanted 0"},
      {scale_not_positive, of([](P p) { p.softmax_scale = -1; }),
       "softmax_scale: is -1, wanted more than 0"},
      {dropout, of([](P p) { p.dropout_p = 0.5F; }), "dropout_p: is 0.5, wanted 0"},
      {dropout_state, of([](P p) { p.dropout_state.present = true; }),
       "dropout_state: is given, wanted seed and offset as numbers"},
      {block_scales,
       of([](P p) { p.v_scale = {.present = true, .block = 1}, p.kv_scale_block = 9; }),
       "v_scale: has a scale for every 9 keys, wanted one per head"},
      {o_scale, of([](P p) { p.o_scale.present = true; }),
       "o_scale: is given, wanted an O without a scale"},
      {amax_o, of([](P p) { p.amax_o.present = true; }), "amax_o: is given, wanted O and LSE only"},
      {amax_s, of([](P p) { p.amax_s.present = true; }), "amax_s: is given, wanted O and LSE only"},
      {max_logit, of([](P p) { p.max_logit.present = true; }),
       "max_logit: is given, wanted O and LSE only"},
      {d_lse_of_f64, [](BackwardProblem& p) { p.has_d_lse = true, p.d_lse_dtype = DType::f64; },
       "d_lse: dtype is f64, wanted f32"},
      {gradients_of_f64,
       [](BackwardProblem& p) { p.d_sinks.present = true, p.d_sinks_dtype = DType::f64; },
       "d_sinks: dtype is f64, wanted at most 32 bits"},
      {gradients_apart, [](BackwardProblem& p) { p.dk_dtype = DType::f32; },
       "dk: dtype is f32, wanted q's f16"},
      {unaligned_rows, of([](P p) { p.v.row = 68; }),
       "v: row stride is 68 elements, wanted a multiple of 8 (16 bytes)"},
      {unaligned_gradients, [](BackwardProblem& p) { p.dq.head = 2116; },
       "dq: head stride is 2116 elements, wanted a multiple of 8 (16 bytes)"},
      {unmapped_inputs, of([](P p) { p.k.batch = 0; }),
       "k: batch stride is 0, wanted more than 0 (tensor maps have no others)"},
      {unmapped_o, of([](P p) { p.o.row = -64; }),
       "o: row stride is -64, wanted more than 0 (tensor maps have no others)"},
      {unmapped_gradients, [](BackwardProblem& p) { p.dv.row = 0; },
       "dv: row stride is 0, wanted more than 0 (tensor maps have no others)"}};
  return all;
}

}  // namespace flashcore::tests
