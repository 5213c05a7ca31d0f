#include "cuda/host/fp8_params.hpp"

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::host {
namespace {

using attention::fp8::kBlockKv, attention::fp8::LargestValues;

LargestValues largest_values(const LargestOutput& output) {
  return {nullptr, output.batch, output.head, static_cast<int>(output.batches),
          static_cast<int>(output.heads)};
}

}  // namespace

void set_fp8_params(attention::fp8::Params& params, const ForwardProblem& p, const Fp8Tiles& tiles,
                    Terms terms) {
  set_forward_params(params, p);
  params.order = tile_order(p, tiles.block_q, section_rows(p, tiles.section_bytes));
  params.heads = static_cast<uint32_t>(p.heads_q);
  params.heads_per_kv_head = static_cast<uint32_t>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.limits = attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                         static_cast<int>(p.seqlen_kv));
  params.varies = entries_vary(p);
  params.precise = terms == Terms::two;
  params.output = element_type(p.o_dtype);
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

void set_fp8_params(attention::fp8::OptionParams& params, const ForwardProblem& p,
                    const Fp8Tiles& tiles, Terms terms) {
  set_fp8_params(static_cast<attention::fp8::Params&>(params), p, tiles, terms);
  params.o_scale = {nullptr, p.o_scale.batch, p.o_scale.head};
  params.amax_o = largest_values(p.amax_o);
  params.amax_s = largest_values(p.amax_s);
  params.softcap = p.softcap;
  params.parts = static_cast<int>((p.head_dim_v + tiles.columns_v - 1) / tiles.columns_v);
  params.packed = p.packed;
  if (!p.packed) return;
  // Slots of tiles and of blocks of keys, whatever sequences they belong to.
  params.varies = true;
  params.order = {
      .batch_heads = static_cast<uint32_t>(p.total_q > 0 ? p.heads_q : 0),
      .q_tiles = static_cast<uint32_t>(attention::packed_slots(p.total_q, p.batch, tiles.block_q)),
      .section_heads = 1,
      .longest_first = false};
  const int64_t slots = attention::packed_slots(p.total_kv, p.batch, kBlockKv);
  params.vt_keys = p.total_kv > 0 ? static_cast<int>(slots * kBlockKv) : 0;
}

void bind_fp8_params(attention::fp8::Params& params, const ForwardProblem& p,
                     const Arguments& args) {
  bind_forward_params(params, p, args);
  params.q_scale.data = p.q_scale.present ? args.q_scale : nullptr;
  const bool has_keys = p.seqlen_kv > 0;  // without them these have no element either
  params.k_scale.data = p.k_scale.present && has_keys ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present && has_keys ? args.v_scale : nullptr;
  params.sinks = p.sinks.present ? args.sinks : nullptr;
}

void bind_fp8_params(attention::fp8::OptionParams& params, const ForwardProblem& p,
                     const Arguments& args) {
  bind_fp8_params(static_cast<attention::fp8::Params&>(params), p, args);
  params.o_scale.data = p.o_scale.present ? args.o_scale : nullptr;
  params.amax_o.data = p.amax_o.present ? reinterpret_cast<uint32_t*>(args.amax_o) : nullptr;
  params.amax_s.data = p.amax_s.present ? reinterpret_cast<uint32_t*>(args.amax_s) : nullptr;
}

bool has_aligned_tensors(const ForwardProblem& p, const Arguments& args) {
  return is_aligned(args.q) && is_aligned(args.o) &&
         (p.seqlen_kv == 0 || (is_aligned(args.k) && is_aligned(args.v)));
}

}  // namespace flashcore::cuda::host
