#include "kernel/problem_for_heuristics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace flashcore {
namespace {

constexpr int64_t kTypicalSeqlen = 4096;

// The mean length of an entry, each weighed by the square of its length. A bound of `total` says
// nothing.
int64_t length_of_most_work(int64_t total, int64_t batch, int64_t longest) {
  if (batch < 2) return total;
  if (longest >= total) return (total + batch - 1) / batch;
  const auto one = static_cast<double>(longest);
  const double other = static_cast<double>(total - longest) / static_cast<double>(batch - 1);
  const double work = one * one + static_cast<double>(batch - 1) * other * other;
  const double weighed = one * one * one + static_cast<double>(batch - 1) * other * other * other;
  return work > 0 ? static_cast<int64_t>(std::ceil(weighed / work)) : 0;
}

}  // namespace

ForwardProblem problem_for_heuristics(const ForwardProblem& p, const PlanContext& context) {
  ForwardProblem seen = p;
  if (context.batch_invariant) {
    seen.batch = 1;
    seen.seqlen_q = seen.seqlen_kv = seen.total_q = seen.total_kv = kTypicalSeqlen;
    seen.packed = seen.seqlens_q.present = seen.seqlens_kv.present = false;
  } else if (p.packed) {
    seen.seqlen_q = length_of_most_work(p.total_q, p.batch, p.seqlen_q);
    seen.seqlen_kv = length_of_most_work(p.total_kv, p.batch, p.seqlen_kv);
    const int64_t entry = std::max<int64_t>(seen.seqlen_q, 1);
    seen.batch =
        std::clamp<int64_t>((p.total_q + entry / 2) / entry, 1, std::max<int64_t>(p.batch, 1));
  }
  return seen;
}

}  // namespace flashcore
