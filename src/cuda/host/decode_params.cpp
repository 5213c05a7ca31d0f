#include "cuda/host/decode_params.hpp"

#include <cstdint>

#include "cuda/attention/softcap.hpp"
#include "cuda/host/cache_params.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "problem/row_strides.hpp"

namespace flashcore::cuda::host {
namespace {

using attention::decode::KeyScales, attention::decode::Params;

constexpr int64_t kChunkBytes = 16, kPairElements = 2;

KeyScales key_scales(const ScaleInput& scale) {
  return {nullptr, scale.batch, scale.head, scale.block};
}

// Returns whether the rows of K or V are aligned 16-byte chunks if the tensor's address is aligned.
bool has_chunks(const RowStrides& stride, const ForwardProblem& p, int64_t head_dim) {
  const int64_t lead = p.paging.present ? p.paging.num_pages : p.packed ? 1 : p.batch;
  const int64_t rows = p.paging.present ? p.paging.page_size : p.packed ? p.total_kv : p.seqlen_kv;
  return head_dim * static_cast<int64_t>(size_of(p.k_dtype)) % kChunkBytes == 0 &&
         misaligned_rows("", stride, p.k_dtype, lead, p.heads_kv, rows).empty();
}

bool has_pairs(const ForwardProblem& p, const void* q) {
  return p.q.batch % kPairElements == 0 && p.q.head % kPairElements == 0 &&
         p.q.row % kPairElements == 0 && reinterpret_cast<uintptr_t>(q) % 4 == 0;
}

}  // namespace

attention::decode::TreeBits tree_bits_of(const ForwardProblem& p) {
  const TreeMask& tree = p.tree_mask;
  return {nullptr, tree.batch, tree.query, tree.word, tree.words, tree.present};
}

void set_decode_params(Params& params, const ForwardProblem& p, bool batch_invariant) {
  using attention::softcap::finite;
  set_forward_params(params, p);
  set_cache_params(params.cache, p);
  params.band = p.band;
  params.softmax_scale = p.softmax_scale;
  if (p.softcap > 0) {
    // Natural units in the place of log2's.
    const double scale = p.softmax_scale, cap = p.softcap;
    params.softcap = {finite(scale / cap), p.softmax_scale, p.softcap};
  }
  params.sinks = {nullptr, 0, p.sinks.head};
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.k_scale = key_scales(p.k_scale);
  params.v_scale = key_scales(p.v_scale);
  params.by_scale_block = divisor_of(p.kv_scale_block);
  params.scaled = p.k_scale.present || p.v_scale.present;
  params.k_e5m2 = p.k_dtype == DType::f8e5m2;
  params.v_e5m2 = p.v_dtype == DType::f8e5m2;
  params.batch_invariant = batch_invariant;
  params.o_type = element_type(p.o_dtype);
  params.group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.by_group = divisor_of(params.group);
}

void bind_decode_params(Params& params, const ForwardProblem& p, const Arguments& args) {
  bind_forward_params(params, p, args);
  bind_cache_params(params.cache, p, args);
  params.sinks.data = p.sinks.present ? args.sinks : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  params.k_scale.data = p.k_scale.present ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present ? args.v_scale : nullptr;
  params.chunks = has_chunks(p.k, p, p.head_dim_qk) && has_chunks(p.v, p, p.head_dim_v) &&
                  is_aligned(args.k) && is_aligned(args.v);
  params.pairs = has_pairs(p, args.q);
}

}  // namespace flashcore::cuda::host
