#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernel/problem_for_heuristics.hpp"
#include "problem/entries.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::tuning {
namespace {

constexpr int64_t kDecodeQueries = 16;  // a forward pass with at most this many is a decode

std::string types_of(const ForwardProblem& p) {
  std::string text(to_string(p.dtype));
  const bool one_for_kv = p.v_dtype == p.k_dtype;
  if (p.k_dtype != p.dtype || !one_for_kv) text += fmt::format("/{}", to_string(p.k_dtype));
  if (!one_for_kv) text += fmt::format("/{}", to_string(p.v_dtype));
  if (p.o_dtype != p.dtype) text += fmt::format(">{}", to_string(p.o_dtype));
  return text;
}

std::string mask_of(const ForwardProblem& p) {
  if (p.band.unlimited()) return "full";
  // With as many queries as keys, both alignments are the same.
  const bool is_square = p.seqlen_q == p.seqlen_kv && !entries_vary(p);
  const bool is_given = p.alignment == Alignment::given;
  const std::string at = is_given                             ? "@given"
                         : is_square                          ? ""
                         : p.alignment == Alignment::top_left ? "@top_left"
                                                              : "@bottom_right";
  if (p.band.left < 0 && p.band.right == 0) return "causal" + at;
  const auto side = [](int64_t reach) {
    return reach < 0 ? std::string("all") : fmt::format("{}", bucket_of(reach));
  };
  return fmt::format("window{},{}{}", side(p.band.left), side(p.band.right), at);
}

std::string options_of(const ForwardProblem& p) {
  std::string text;
  const auto add = [&](bool is_there, std::string_view name) {
    if (is_there) text += fmt::format(" {}", name);
  };
  add(p.bias.present, "bias");
  add(p.mask.present, "mask");
  add(p.alibi_slopes.present, "alibi");
  add(p.sinks.present, "sinks");
  add(p.softcap > 0, "softcap");
  add(!p.scale_is_positive(), "scale<=0");
  add(p.dropout_p > 0, p.dropout_state.present ? "dropout_state" : "dropout");
  add(p.q_scale.present || p.k_scale.present || p.v_scale.present, "scales");
  add(p.packed, "packed");
  add(p.seqlens_q.present || p.seqlens_kv.present, "lengths");
  add(p.causal_offsets.present, "offsets");
  if (p.paging.present) text += fmt::format(" pages{}", bucket_of(p.paging.page_size));
  add(p.cache_leftpad.present, "leftpad");
  add(p.tree_mask.present, "tree");
  add(p.v_transposed, "v_transposed");
  add(p.o_scale.present, "o_scale");
  add(p.amax_o.present || p.amax_s.present, "amax");
  add(p.max_logit.present, "max_logit");
  return text;
}

std::string key_of(std::string_view pass, const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant || p.heads_q == 0 || p.batch == 0) return {};
  const ForwardProblem seen = problem_for_heuristics(p, context);
  if (seen.seqlen_q == 0) return {};
  std::string dims = fmt::format("d{}", p.head_dim_qk);
  if (p.head_dim_v != p.head_dim_qk) dims += fmt::format("/{}", p.head_dim_v);
  std::string key = fmt::format("{} {} {} {}",
                                pass.empty() && seen.seqlen_q <= kDecodeQueries ? "decode"
                                : pass.empty()                                  ? "forward"
                                                                                : pass,
                                types_of(p), dims, mask_of(p));
  if (p.heads_kv != p.heads_q && p.heads_kv > 0) {
    key += fmt::format(" group{}", p.heads_q / p.heads_kv);
  }
  key += options_of(p);
  key += fmt::format(" q{} kv{} bh{}", bucket_of(seen.seqlen_q), bucket_of(seen.seqlen_kv),
                     bucket_of(seen.batch * p.heads_q));
  return key;
}

}  // namespace

int64_t bucket_of(int64_t length) {
  if (length <= 0) return 0;
  const double step = std::round(2 * std::log2(static_cast<double>(length)));
  return std::llround(std::exp2(step / 2));
}

std::string tuned_key(const ForwardProblem& problem, const PlanContext& context) {
  return key_of("", problem, context);
}

std::string tuned_key(const BackwardProblem& problem, const PlanContext& context) {
  const bool f32 = problem.dq_dtype != problem.forward.dtype;
  std::string key = key_of("backward", problem.forward, context);
  if (key.empty()) return key;
  if (f32) key += fmt::format(" to_{}", to_string(problem.dq_dtype));
  if (problem.d_bias.present) key += " d_bias";
  if (problem.d_sinks.present) key += " d_sinks";
  if (problem.d_alibi_slopes.present) key += " d_slopes";
  if (!context.deterministic) key += " any_order";
  return key;
}

}  // namespace flashcore::tuning
