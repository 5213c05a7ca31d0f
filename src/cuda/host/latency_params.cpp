#include "cuda/host/latency_params.hpp"

#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::host {
namespace {

// The limits of every sequence where they do not vary.
attention::BandLimits common_limits(const ForwardProblem& p) {
  return attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                static_cast<int>(p.seqlen_kv));
}

}  // namespace

// Everything but the pointers.
attention::latency::Params latency_params(const ForwardProblem& p) {
  attention::latency::Params params{};
  set_forward_params(params, p);
  params.queries = static_cast<int>(p.seqlen_q);
  params.heads_per_kv_head = p.heads_kv > 0 ? static_cast<int>(p.heads_q / p.heads_kv) : 1;
  params.scale_log2 = static_cast<float>(p.scale_log2());
  params.varies = entries_vary(p);
  params.limits = common_limits(p);
  params.band = p.band;
  return params;
}

}  // namespace flashcore::cuda::host
