#include "cuda/backward_sm90/common/row_plan.hpp"

#include <numbers>

#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

Target target(const RowStrides& stride) { return {nullptr, stride.batch, stride.head, stride.row}; }

}  // namespace

void set_row_params(RowParams& params, const BackwardProblem& problem, int block_q) {
  const ForwardProblem& p = problem.forward;
  host::set_forward_params(params, p);
  params.d_o = {nullptr, problem.d_o.batch, problem.d_o.head, problem.d_o.row};
  params.d_lse_batch = problem.d_lse.batch, params.d_lse_head = problem.d_lse.head;
  params.d_lse_row = problem.d_lse.row;
  params.dq = target(problem.dq);
  params.dk = target(problem.dk);
  params.dv = target(problem.dv);
  params.limits = attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                         static_cast<int>(p.seqlen_kv));
  params.group = static_cast<int>(p.heads_q / p.heads_kv);
  params.q_blocks = static_cast<int>((p.seqlen_q + block_q - 1) / block_q);
  params.scale_log2 = static_cast<float>(p.softmax_scale * std::numbers::log2e);
  params.scale = p.softmax_scale;
}

void bind_row_params(RowParams& params, const BackwardProblem& problem,
                     const BackwardArguments& args) {
  host::bind_forward_params(params, problem.forward, args.forward);
  params.d_o.data = args.d_o;
  params.d_lse = problem.has_d_lse ? static_cast<const float*>(args.d_lse) : nullptr;
  params.dq.data = args.dq;
  params.dk.data = args.dk;
  params.dv.data = args.dv;
}

int64_t WorkspaceParts::add(int64_t count) {
  const int64_t begin = end;
  const int64_t bytes = product_of({count, static_cast<int64_t>(sizeof(float))});
  end = sum_of({end, bytes, kWorkspaceAlignment - 1});
  if (end != kTooLarge) end = end / kWorkspaceAlignment * kWorkspaceAlignment;
  return begin;
}

}  // namespace flashcore::cuda::backward_sm90
