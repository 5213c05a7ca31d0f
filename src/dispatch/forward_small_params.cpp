#include "dispatch/forward_small_params.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_small_sm90;

constexpr uintptr_t kPointerAlignment = 16;
constexpr double kLog2E = 1.4426950408889634;

small::Diagonal diagonal(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return small::Diagonal::top_left;
    case Alignment::bottom_right:
      return small::Diagonal::bottom_right;
    case Alignment::given:
      return small::Diagonal::given;
  }
  return small::Diagonal::top_left;
}

small::Matrix matrix(const RowStrides& stride) {
  return {nullptr, stride.batch, stride.head, stride.row};
}

// The limits of every entry where they do not vary.
small::BandLimits common_limits(const ForwardProblem& p) {
  Sequence sequence;
  sequence.len_q = p.seqlen_q;
  sequence.len_kv = p.seqlen_kv;
  if (p.alignment == Alignment::bottom_right) sequence.offset = p.seqlen_kv - p.seqlen_q;
  if (p.alignment == Alignment::given) sequence.offset = p.causal_offset;
  return small::small_limits(sequence, p.band);
}

}  // namespace

bool small_entries_vary(const ForwardProblem& p) {
  return p.packed || p.seqlens_q.present || p.seqlens_kv.present || p.causal_offsets.present;
}

// Everything but the pointers.
small::Params small_params(const ForwardProblem& p) {
  small::Params params{};
  params.q = matrix(p.q);
  params.k = matrix(p.k);
  params.v = matrix(p.v);
  params.o_batch = p.o.batch, params.o_head = p.o.head, params.o_row = p.o.row;
  params.lse_batch = p.lse.batch, params.lse_head = p.lse.head, params.lse_row = p.lse.row;
  params.heads_per_kv_head = p.heads_kv > 0 ? static_cast<int>(p.heads_q / p.heads_kv) : 1;
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.head_dim_qk = static_cast<int>(p.head_dim_qk);
  params.head_dim_v = static_cast<int>(p.head_dim_v);
  params.scale_log2 = static_cast<float>(static_cast<double>(p.softmax_scale) * kLog2E);
  params.varies = small_entries_vary(p);
  params.limits = common_limits(p);
  params.total_q = static_cast<int>(p.total_q);
  params.total_kv = static_cast<int>(p.total_kv);
  params.cu_seqlens_q.step = p.cu_seqlens_q.batch;
  params.cu_seqlens_kv.step = p.cu_seqlens_kv.batch;
  params.seqlens_q.step = p.seqlens_q.batch;
  params.seqlens_kv.step = p.seqlens_kv.batch;
  params.causal_offsets.step = p.causal_offsets.batch;
  params.band = p.band;
  params.diagonal = diagonal(p.alignment);
  params.causal_offset = p.causal_offset;
  return params;
}

void bind_small(small::Params& params, const ForwardProblem& p, const Arguments& args) {
  params.q.data = args.q;
  params.k.data = args.k;
  params.v.data = args.v;
  params.o = args.o;
  params.lse = p.has_lse ? static_cast<float*>(args.lse) : nullptr;
  if (!params.varies) return;
  params.cu_seqlens_q.data = p.cu_seqlens_q.present ? args.cu_seqlens_q : nullptr;
  params.cu_seqlens_kv.data = p.cu_seqlens_kv.present ? args.cu_seqlens_kv : nullptr;
  params.seqlens_q.data = p.seqlens_q.present ? args.seqlens_q : nullptr;
  params.seqlens_kv.data = p.seqlens_kv.present ? args.seqlens_kv : nullptr;
  params.causal_offsets.data = p.causal_offsets.present ? args.causal_offsets : nullptr;
}

bool small_is_aligned(const Arguments& args) {
  for (const void* const pointer : {args.q, args.k, args.v, static_cast<const void*>(args.o)}) {
    if (reinterpret_cast<uintptr_t>(pointer) % kPointerAlignment != 0) return false;
  }
  return true;
}

}  // namespace flashcore
