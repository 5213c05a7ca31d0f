#include "cuda/forward_fp8_sm90/throughput/params_plan.hpp"

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

// Keys and values of a section of heads that runs at once: half of an H100's L2 and some.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

OutputType output_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return OutputType::f32;
    case DType::f16:
      return OutputType::f16;
    case DType::f8e4m3:
      return OutputType::e4m3;
    case DType::f8e5m2:
      return OutputType::e5m2;
    default:
      return OutputType::bf16;
  }
}

}  // namespace

void set_params(Params& params, const ForwardProblem& p, int block_q, Terms terms) {
  host::set_forward_params(params, p);
  params.order = host::tile_order(p, block_q, host::section_rows(p, kSectionBytes));
  params.heads = static_cast<uint32_t>(p.heads_q);
  params.heads_per_kv_head = static_cast<uint32_t>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.limits = attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                         static_cast<int>(p.seqlen_kv));
  params.varies = entries_vary(p);
  params.precise = terms == Terms::two;
  params.output = output_type(p.o_dtype);
  params.left = p.band.left;
  params.right = p.band.right;
  params.softmax_scale = p.softmax_scale;
  params.q_scale = {nullptr, p.q_scale.batch, p.q_scale.head};
  params.k_scale = {nullptr, p.k_scale.batch, p.k_scale.head};
  params.v_scale = {nullptr, p.v_scale.batch, p.v_scale.head};
  params.sinks_step = p.sinks.head;
  // A V that the caller stores transposed needs no V^T.
  const int64_t made = p.v_transposed ? 0 : p.seqlen_kv;
  params.vt_keys = static_cast<int>((made + kBlockKv - 1) / kBlockKv * kBlockKv);
}

void bind_params(Params& params, const ForwardProblem& p, const Arguments& args,
                 std::span<std::byte> workspace) {
  host::bind_forward_params(params, p, args);
  params.q_scale.data = p.q_scale.present ? args.q_scale : nullptr;
  const bool has_keys = p.seqlen_kv > 0;  // without them these have no element either
  params.k_scale.data = p.k_scale.present && has_keys ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present && has_keys ? args.v_scale : nullptr;
  params.sinks = p.sinks.present ? args.sinks : nullptr;
  params.vt = reinterpret_cast<uint8_t*>(workspace.data());
}

bool are_aligned(const ForwardProblem& p, const Arguments& args) {
  return host::is_aligned(args.q) && host::is_aligned(args.o) &&
         (p.seqlen_kv == 0 || (host::is_aligned(args.k) && host::is_aligned(args.v)));
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
