#include "problem/features.hpp"

#include <algorithm>
#include <span>

#include "problem/dtypes.hpp"
#include "problem/entries.hpp"
#include "problem/row_strides.hpp"

namespace flashcore {
namespace {

using enum Feature;

class Collected {
 public:
  void add(bool asked, Feature one) {
    if (asked) features_ = features_ | one;
  }
  Features features() const { return features_; }

 private:
  Features features_;
};

bool any(std::string (*refuse)(const TensorRows&), std::span<const TensorRows> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const TensorRows& one) { return !refuse(one).empty(); });
}

void add_types(Collected& all, const ForwardProblem& p) {
  all.add(p.has_lse && p.lse_dtype != DType::f32, lse_of_f64);
  all.add(p.o_dtype != p.dtype, o_apart);
  all.add(p.k_dtype != p.dtype && !is_fp8(p.dtype), narrow_kv);
  all.add(p.k_dtype != p.dtype && is_fp8(p.dtype), k_apart);
  all.add(p.v_dtype != p.k_dtype, v_apart);
}

void add_shapes(Collected& all, const ForwardProblem& p) {
  all.add(p.head_dim_v != p.head_dim_qk, v_head_dim);
  all.add(p.heads_q != p.heads_kv, grouped_heads);
  all.add(p.band.left >= 0, window_left);
  all.add(p.band.right > 0, window_right);
}

bool differs_by_block(const ForwardProblem& p, const ScaleInput& scale) {
  return scale.present && scale.block != 0 && p.kv_scale_block < p.seqlen_kv;
}

void add_scores(Collected& all, const ForwardProblem& p) {
  all.add(p.softcap > 0, softcap);
  all.add(!p.scale_is_positive(), scale_not_positive);
  all.add(p.dropout_p > 0, dropout);
  all.add(differs_by_block(p, p.k_scale) || differs_by_block(p, p.v_scale), block_scales);
}

void add_layouts(Collected& all, const ForwardProblem& p) {
  const std::array<TensorRows, 4> tensors = forward_rows(p);
  all.add(any(unaligned, tensors), unaligned_rows);
  all.add(any(unmapped, std::span(tensors).first(3)), unmapped_inputs);
  all.add(any(unmapped, std::span(tensors).last(1)), unmapped_o);
}

}  // namespace

std::array<TensorRows, 4> forward_rows(const ForwardProblem& p) {
  const int64_t lead_q = p.packed ? 1 : p.batch, rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t lead_kv = lead_of_keys(p), rows_kv = rows_of_keys(p);
  return {TensorRows{"q", p.q, p.dtype, lead_q, p.heads_q, rows_q},
          {"k", p.k, p.k_dtype, lead_kv, p.heads_kv, rows_kv},
          {"v", p.v, p.v_dtype, lead_kv, p.heads_kv, p.v_transposed ? p.head_dim_v : rows_kv},
          {"o", p.o, p.o_dtype, lead_q, p.heads_q, rows_q}};
}

std::array<TensorRows, 4> gradient_rows(const BackwardProblem& problem) {
  const auto [q, k, v, o] = forward_rows(problem.forward);
  return {TensorRows{"d_o", problem.d_o, o.dtype, o.lead, o.heads, o.rows},
          {"dk", problem.dk, problem.dk_dtype, k.lead, k.heads, k.rows},
          {"dv", problem.dv, problem.dv_dtype, v.lead, v.heads, v.rows},
          {"dq", problem.dq, problem.dq_dtype, q.lead, q.heads, q.rows}};
}

std::string unaligned(const TensorRows& t) {
  return misaligned_rows(t.name, t.stride, t.dtype, t.lead, t.heads, t.rows);
}

std::string unmapped(const TensorRows& t) {
  return unmappable_strides(t.name, t.stride, t.lead, t.heads, t.rows);
}

Features features_of(const ForwardProblem& p) {
  Collected all;
  for (const Given& one : given::kAll) all.add(one.is_in(p), one.feature);
  add_types(all, p);
  add_shapes(all, p);
  add_scores(all, p);
  add_layouts(all, p);
  return all.features();
}

Features features_of(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  Collected all;
  all.add(problem.has_d_lse && problem.d_lse_dtype != DType::f32, d_lse_of_f64);
  all.add(problem.writes_f64(), gradients_of_f64);
  all.add(problem.dq_dtype != p.dtype || problem.dk_dtype != p.dtype || problem.dv_dtype != p.dtype,
          gradients_apart);
  const std::array<TensorRows, 4> tensors = gradient_rows(problem);
  all.add(any(unaligned, tensors), unaligned_gradients);
  all.add(any(unmapped, std::span(tensors).first(3)), unmapped_gradients);
  return features_of(p) | all.features();
}

}  // namespace flashcore
