#include "problem/entries.hpp"

namespace flashcore {

bool entries_vary(const ForwardProblem& p) {
  return p.packed || p.seqlens_q.present || p.seqlens_kv.present || p.causal_offsets.present;
}

int64_t common_offset(const ForwardProblem& p) {
  if (p.alignment == Alignment::bottom_right) return p.seqlen_kv - p.seqlen_q;
  return p.alignment == Alignment::given ? p.causal_offset : 0;
}

int64_t lead_of_keys(const ForwardProblem& p) {
  if (p.paging.present) return p.paging.num_pages;
  return p.packed ? 1 : p.batch;
}

int64_t rows_of_keys(const ForwardProblem& p) {
  if (p.paging.present) return p.paging.page_size;
  return p.packed ? p.total_kv : p.seqlen_kv;
}

}  // namespace flashcore
