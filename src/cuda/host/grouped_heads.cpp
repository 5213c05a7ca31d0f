#include "cuda/host/grouped_heads.hpp"

namespace flashcore::cuda::host {
namespace {

void group_rows(RowStrides& stride, int64_t group) {
  stride.row = stride.head;
  stride.head *= group;
}

void group_pairs(PairInput& pairs, int64_t group) {
  pairs.query = pairs.head;
  pairs.head *= group;
}

// Returns whether the only query of every sequence sees all of its keys.
bool sees_every_key(const ForwardProblem& p) {
  if (p.band.left < 0 && p.band.right < 0) return true;
  return p.band.left < 0 && p.alignment == Alignment::bottom_right && !p.seqlens_q.present;
}

}  // namespace

ForwardProblem with_grouped_heads(const ForwardProblem& p) {
  const bool one_query = !p.packed && p.seqlen_q == 1 && !p.seqlens_q.present;
  const bool per_head = p.alibi_slopes.present || p.sinks.present || p.dropout_p > 0;
  if (!one_query || per_head || p.heads_q <= p.heads_kv || p.heads_kv == 0 || !sees_every_key(p)) {
    return p;
  }
  const int64_t group = p.heads_q / p.heads_kv;
  ForwardProblem grouped = p;
  grouped.heads_q = p.heads_kv;
  grouped.seqlen_q = group;
  group_rows(grouped.q, group);
  group_rows(grouped.o, group);
  group_rows(grouped.lse, group);
  group_pairs(grouped.bias, group);
  group_pairs(grouped.mask, group);
  grouped.band = Band{-1, -1};
  return grouped;
}

}  // namespace flashcore::cuda::host
