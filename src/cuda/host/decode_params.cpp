#include "cuda/host/decode_params.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/row_strides.hpp"

namespace flashcore::cuda::host {
namespace {

using attention::decode::KeyScales, attention::decode::OutputType, attention::decode::Params;

constexpr int64_t kChunkBytes = 16, kPairElements = 2;

attention::Divisor by(int64_t d) {
  return attention::divisor(static_cast<uint32_t>(std::clamp<int64_t>(d, 1, INT32_MAX)));
}

OutputType output_type(DType dtype) {
  if (dtype == DType::f16) return OutputType::f16;
  return dtype == DType::bf16 ? OutputType::bf16 : OutputType::f32;
}

void set_cache(Params& params, const ForwardProblem& p) {
  attention::KvCacheParams& cache = params.cache;
  const Paging& paging = p.paging;
  cache.table_batch = paging.flat ? 0 : paging.table_batch;
  cache.table_page = paging.table_page;
  cache.flat = paging.present && paging.flat;
  cache.table_pages = static_cast<int>(paging.table_pages);
  cache.num_pages = static_cast<int>(paging.num_pages);
  cache.page_size = static_cast<int>(paging.page_size);
  cache.by_page_size = by(paging.page_size);
  cache.indptr.step = p.kv_indptr.batch;
  cache.last_page_len.step = p.kv_last_page_len.batch;
  cache.leftpad.step = p.cache_leftpad.batch;
}

KeyScales key_scales(const ScaleInput& scale) {
  return {nullptr, scale.batch, scale.head, scale.block};
}

// Whether the rows of K or V are aligned 16-byte chunks, except for where it begins.
bool has_chunks(const RowStrides& stride, const ForwardProblem& p, int64_t head_dim) {
  const int64_t lead = p.paging.present ? p.paging.num_pages : p.packed ? 1 : p.batch;
  const int64_t rows = p.paging.present ? p.paging.page_size : p.packed ? p.total_kv : p.seqlen_kv;
  return head_dim * static_cast<int64_t>(size_of(p.kv_dtype)) % kChunkBytes == 0 &&
         misaligned_rows("", stride, p.kv_dtype, lead, p.heads_kv, rows).empty();
}

bool has_pairs(const ForwardProblem& p, const void* q) {
  return p.q.batch % kPairElements == 0 && p.q.head % kPairElements == 0 &&
         p.q.row % kPairElements == 0 && reinterpret_cast<uintptr_t>(q) % 4 == 0;
}

void bind_cache(Params& params, const ForwardProblem& p, const Arguments& args) {
  attention::KvCacheParams& cache = params.cache;
  if (p.paging.present) cache.pages = p.paging.flat ? args.kv_indices : args.page_table;
  cache.indptr.data = p.kv_indptr.present ? args.kv_indptr : nullptr;
  cache.last_page_len.data = p.kv_last_page_len.present ? args.kv_last_page_len : nullptr;
  cache.leftpad.data = p.cache_leftpad.present ? args.cache_leftpad : nullptr;
  cache.page_status = p.page_status.present ? args.page_status : nullptr;
}

}  // namespace

void set_decode_params(Params& params, const ForwardProblem& p, bool batch_invariant) {
  using attention::softcap::finite;
  set_forward_params(params, p);
  set_cache(params, p);
  params.band = p.band;
  params.softmax_scale = p.softmax_scale;
  if (p.softcap > 0) {
    // Natural units in the place of those of log2.
    const double scale = p.softmax_scale, cap = p.softcap;
    params.softcap = {finite(scale / cap), p.softmax_scale, p.softcap};
  }
  params.sinks = {nullptr, 0, p.sinks.head};
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.k_scale = key_scales(p.k_scale);
  params.v_scale = key_scales(p.v_scale);
  params.by_scale_block = by(p.kv_scale_block);
  params.scaled = p.k_scale.present || p.v_scale.present;
  params.e5m2 = p.kv_dtype == DType::f8e5m2;
  params.batch_invariant = batch_invariant;
  params.o_type = output_type(p.o_dtype);
  params.group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  params.by_group = by(params.group);
}

void bind_decode_params(Params& params, const ForwardProblem& p, const Arguments& args) {
  bind_forward_params(params, p, args);
  bind_cache(params, p, args);
  params.sinks.data = p.sinks.present ? args.sinks : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  params.k_scale.data = p.k_scale.present ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present ? args.v_scale : nullptr;
  params.chunks = has_chunks(p.k, p, p.head_dim_qk) && has_chunks(p.v, p, p.head_dim_v) &&
                  is_aligned(args.k) && is_aligned(args.v);
  params.pairs = has_pairs(p, args.q);
}

}  // namespace flashcore::cuda::host
