#include "bench/cases/work.hpp"

#include "problem/problem.hpp"
#include "problem/visibility.hpp"

namespace flashcore::bench {
namespace {

double count_flop(const ForwardProblem& p, const Arguments& args) {
  const bool lengths = p.packed || p.seqlens_q.present || p.seqlens_kv.present;
  const double flop_a_pair =
      2.0 * static_cast<double>(p.heads_q) * static_cast<double>(p.head_dim_qk + p.head_dim_v);
  if (!lengths && p.seqlen_q == p.seqlen_kv && p.band.left < 0 && p.band.right == 0 &&
      p.alignment != Alignment::given) {
    const auto side = static_cast<double>(p.seqlen_q);
    return static_cast<double>(p.batch) * flop_a_pair * side * side / 2;
  }
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence sequence = sequence_of(p, args, b);
    for (int64_t i = 0; i < sequence.len_q; ++i) {
      pairs += static_cast<double>(visible_keys(sequence, p.band, i).size());
    }
  }
  return pairs * flop_a_pair;
}

}  // namespace

double forward_flop(HostProblem& host) {
  const Result<ForwardProblem> resolved = resolve(host.problem);
  return resolved.ok() ? count_flop(*resolved, host.arguments()) : 0;
}

double forward_flop(const Problem& problem) {
  const Result<ForwardProblem> resolved = resolve(problem);
  return resolved.ok() ? count_flop(*resolved, Arguments{}) : 0;
}

}  // namespace flashcore::bench
