// The fp64 reference. One task is a batch entry and KV head. Each row takes three passes over its
// keys: scores and their maximum, the denominator, the weighted sum.
#include "cpu/reference.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/largest.hpp"
#include "cpu/parallel.hpp"
#include "cpu/reference_rows.hpp"
#include "problem/dtype.hpp"

namespace flashcore::cpu {
namespace {

void attend_row(const ForwardProblem& p, const Arguments& args, const Sequence& s, const KvHead& kv,
                const DropoutWeights& dropout, const QueryRow& query, DType intermediate,
                std::vector<double>& scores, std::vector<double>& out) {
  const auto& [b, h, i, q, q_scale] = query;
  const KeyRange range = visible_keys(s, p.band, i);
  const double sink = p.sinks.present ? args.sinks[p.sinks.at(0, h)] : kRemovedPair;

  double largest = sink, largest_s = kRemovedPair;
  bool any = false;
  for (int64_t j = range.begin; j < range.end; ++j) {
    const double product = dot(q.data(), kv.k.data() + j * p.head_dim_qk, p.head_dim_qk);
    const double value = round_to(intermediate, score(p, args, s, kv, query, j, product));
    scores[static_cast<size_t>(j)] = value;
    any = any || value != kRemovedPair;
    largest_s = larger(largest_s, value);
    if (value > largest || std::isnan(value)) largest = value;  // NaN stays: no number is larger
  }

  if (largest_s == std::numeric_limits<double>::infinity()) largest_s = largest_s - largest_s;

  out.assign(static_cast<size_t>(p.head_dim_v), 0.0);
  double largest_p = 0;
  double sum = largest == kRemovedPair ? 0 : std::exp(sink - largest);
  for (int64_t j = range.begin; any && j < range.end; ++j) {
    sum += std::exp(scores[static_cast<size_t>(j)] - largest);
  }
  for (int64_t j = range.begin; any && j < range.end; ++j) {
    if (scores[static_cast<size_t>(j)] == kRemovedPair) continue;
    const double probability =
        round_to(intermediate, std::exp(scores[static_cast<size_t>(j)] - largest) / sum);
    largest_p = larger(largest_p, probability);
    const double weight = probability * dropout.of(query, j);
    const double* v_row = kv.v.data() + j * p.head_dim_v;
    for (int64_t d = 0; d < p.head_dim_v; ++d) out[static_cast<size_t>(d)] += weight * v_row[d];
  }

  const int64_t row = s.q_begin + i;
  const double o_scale = p.o_scale.present ? args.o_scale[p.o_scale.at(b, h)] : 1.0;
  double largest_o = 0;
  for (int64_t d = 0; d < p.head_dim_v; ++d) {
    const double value = out[static_cast<size_t>(d)];
    largest_o = larger(largest_o, std::abs(value));
    store_element(p.o_dtype, args.o, p.o.at(b, h, row) + d, value / o_scale);
  }
  add_largest(p, args, b, h,
              {static_cast<float>(largest_o), static_cast<float>(largest_p),
               static_cast<float>(largest_s)});
  if (p.has_lse) {
    const double lse = any ? largest + std::log(sum) : sink;
    store_element(p.lse_dtype, args.lse, p.lse.at(b, h, row), lse);
  }
}

}  // namespace

void reference_forward(const ForwardProblem& p, const Arguments& args, int threads,
                       DType intermediate) {
  clear_largest(p, args);
  if (p.heads_q == 0 || p.seqlen_q == 0) return;  // no rows, however large the batch
  const int64_t group = p.heads_q / p.heads_kv;
  const DropoutWeights dropout(p, args);
  parallel_for(p.batch * p.heads_kv, threads, [&](int64_t task) {
    const int64_t b = task / p.heads_kv;
    const int64_t kv_head = task % p.heads_kv;
    const Sequence s = sequence_of(p, args, b);
    const KvHead kv = load_kv_head(p, args, s, b, kv_head);
    std::vector<double> scores(static_cast<size_t>(s.len_kv));
    std::vector<double> out;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < s.rows_q; ++i) {
        attend_row(p, args, s, kv, dropout, load_query(p, args, s, b, h, i), intermediate, scores,
                   out);
      }
    }
  });
}

}  // namespace flashcore::cpu
