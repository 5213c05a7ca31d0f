#include "cuda/host/forward_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "problem/status.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr uintptr_t kPointerAlignment = 16;

attention::RowMatrix row_matrix(const RowStrides& stride) {
  return {nullptr, stride.batch, stride.head, stride.row};
}

attention::Diagonal diagonal(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return attention::Diagonal::top_left;
    case Alignment::bottom_right:
      return attention::Diagonal::bottom_right;
    case Alignment::given:
      return attention::Diagonal::given;
  }
  return attention::Diagonal::top_left;
}

}  // namespace

Status cuda_failure(std::string_view kernel, std::string_view what, cudaError_t error) {
  return {StatusCode::device_error,
          fmt::format("kernel {}: {} failed with {} ({})", kernel, what, cudaGetErrorName(error),
                      cudaGetErrorString(error))};
}

void set_forward_params(attention::ForwardParams& params, const ForwardProblem& p) {
  params.q = row_matrix(p.q);
  params.k = row_matrix(p.k);
  params.v = row_matrix(p.v);
  params.o_batch = p.o.batch, params.o_head = p.o.head, params.o_row = p.o.row;
  params.lse_batch = p.lse.batch, params.lse_head = p.lse.head, params.lse_row = p.lse.row;
  params.batch = static_cast<int>(p.batch);
  params.heads_q = static_cast<int>(p.heads_q);
  params.heads_kv = static_cast<int>(p.heads_kv);
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.total_q = static_cast<int>(p.total_q);
  params.total_kv = static_cast<int>(p.total_kv);
  params.head_dim_qk = static_cast<int>(p.head_dim_qk);
  params.head_dim_v = static_cast<int>(p.head_dim_v);
  params.cu_seqlens_q.step = p.cu_seqlens_q.batch;
  params.cu_seqlens_kv.step = p.cu_seqlens_kv.batch;
  params.seqlens_q.step = p.seqlens_q.batch;
  params.seqlens_kv.step = p.seqlens_kv.batch;
  params.causal_offsets.step = p.causal_offsets.batch;
  params.diagonal = diagonal(p.alignment);
  params.causal_offset = p.causal_offset;
}

attention::PairMatrix pair_matrix(const PairInput& input) {
  return {nullptr, input.batch, input.head, input.query, input.key};
}

void bind_forward_params(attention::ForwardParams& params, const ForwardProblem& p,
                         const Arguments& args) {
  params.q.data = args.q;
  params.k.data = args.k;
  params.v.data = args.v;
  params.o = args.o;
  params.lse = p.has_lse ? static_cast<float*>(args.lse) : nullptr;
  params.cu_seqlens_q.data = p.cu_seqlens_q.present ? args.cu_seqlens_q : nullptr;
  params.cu_seqlens_kv.data = p.cu_seqlens_kv.present ? args.cu_seqlens_kv : nullptr;
  params.seqlens_q.data = p.seqlens_q.present ? args.seqlens_q : nullptr;
  params.seqlens_kv.data = p.seqlens_kv.present ? args.seqlens_kv : nullptr;
  params.causal_offsets.data = p.causal_offsets.present ? args.causal_offsets : nullptr;
}

uint32_t section_rows(const ForwardProblem& p, int64_t section_bytes) {
  const int64_t columns = std::max<int64_t>(p.head_dim_qk + p.head_dim_v, 1);
  return static_cast<uint32_t>(section_bytes / (static_cast<int64_t>(size_of(p.dtype)) * columns));
}

attention::TileOrder tile_order(const ForwardProblem& p, int block_q, uint32_t section_rows) {
  const auto q_tiles = static_cast<uint32_t>((p.seqlen_q + block_q - 1) / block_q);
  const auto heads = static_cast<uint32_t>(p.batch * p.heads_q);
  const auto group = static_cast<uint32_t>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);
  return {.batch_heads = heads,
          .q_tiles = q_tiles,
          .section_heads = attention::section_heads(
              section_rows, static_cast<uint32_t>(p.seqlen_kv), group, heads),
          .longest_first = p.band.right >= 0 && q_tiles > 1};
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kPointerAlignment == 0;
}

}  // namespace flashcore::cuda::host
