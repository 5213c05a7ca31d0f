#include "cuda/host/latency_params.hpp"

#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr double kLog2E = 1.4426950408889634;

// The limits of every entry where they do not vary.
attention::BandLimits common_limits(const ForwardProblem& p) {
  Sequence sequence;
  sequence.len_q = p.seqlen_q;
  sequence.len_kv = p.seqlen_kv;
  sequence.offset = common_offset(p);
  return attention::latency::small_limits(sequence, p.band);
}

}  // namespace

// Everything but the pointers.
attention::latency::Params latency_params(const ForwardProblem& p) {
  attention::latency::Params params{};
  set_forward_params(params, p);
  params.queries = static_cast<int>(p.seqlen_q);
  params.heads_per_kv_head = p.heads_kv > 0 ? static_cast<int>(p.heads_q / p.heads_kv) : 1;
  params.scale_log2 = static_cast<float>(static_cast<double>(p.softmax_scale) * kLog2E);
  params.varies = entries_vary(p);
  params.limits = common_limits(p);
  params.band = p.band;
  return params;
}

}  // namespace flashcore::cuda::host
