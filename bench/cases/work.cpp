#include "bench/cases/work.hpp"

#include <algorithm>

#include "problem/problem.hpp"
#include "problem/visibility.hpp"

namespace flashcore::bench {
namespace {

// Replaces unknown lengths by the largest possible ones.
ForwardProblem with_known_lengths(ForwardProblem p, const Arguments& args) {
  if (args.seqlens_q == nullptr) p.seqlens_q.present = false;
  if (args.seqlens_kv == nullptr) p.seqlens_kv.present = false;
  if (args.kv_indptr == nullptr) p.paging.flat = false;
  if (args.cache_leftpad == nullptr) p.cache_leftpad.present = false;
  if (p.causal_offsets.present && args.causal_offsets == nullptr) {
    p.causal_offsets.present = false;
    p.alignment = Alignment::bottom_right;
  }
  return p;
}

// Pairs of a query and a key per head, summed over the batch.
double count_pairs(const ForwardProblem& problem, const Arguments& args) {
  const ForwardProblem p = with_known_lengths(problem, args);
  if (p.packed_kv() && (args.cu_seqlens_q == nullptr || args.cu_seqlens_kv == nullptr)) {
    return static_cast<double>(p.total_q) * static_cast<double>(std::min(p.seqlen_kv, p.total_kv));
  }
  if (p.packed && args.cu_seqlens_q == nullptr) {
    return static_cast<double>(p.total_q) * static_cast<double>(p.seqlen_kv);
  }
  const bool lengths = p.packed || p.seqlens_q.present || p.seqlens_kv.present;
  if (!lengths && p.seqlen_q == p.seqlen_kv && p.band.left < 0 && p.band.right == 0 &&
      p.alignment != Alignment::given) {
    const auto side = static_cast<double>(p.seqlen_q);
    return static_cast<double>(p.batch) * side * side / 2;
  }
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence sequence = sequence_of(p, args, b);
    for (int64_t i = 0; i < sequence.len_q; ++i) {
      pairs += static_cast<double>(visible_keys(sequence, p.band, i).size());
    }
  }
  return pairs;
}

// Counts per pair `qk` products with rows of Dqk elements, and `v` with rows of Dv.
double count_flop(const Problem& problem, const Arguments& args, int64_t qk, int64_t v) {
  const Result<ForwardProblem> resolved = resolve(problem);
  if (!resolved.ok()) return 0;
  const ForwardProblem& p = *resolved;
  return count_pairs(p, args) * 2.0 * static_cast<double>(p.heads_q) *
         static_cast<double>(qk * p.head_dim_qk + v * p.head_dim_v);
}

}  // namespace

double forward_flop(HostProblem& host) { return count_flop(host.problem, host.arguments(), 1, 1); }

double forward_flop(const Problem& problem, const Arguments& args) {
  return count_flop(problem, args, 1, 1);
}

double forward_flop(const Problem& problem) { return count_flop(problem, Arguments{}, 1, 1); }

double backward_flop(HostProblem& host) { return count_flop(host.problem, host.arguments(), 3, 2); }

double backward_flop(const Problem& problem, const Arguments& args) {
  return count_flop(problem, args, 3, 2);
}

double backward_flop(const Problem& problem) { return count_flop(problem, Arguments{}, 3, 2); }

}  // namespace flashcore::bench
