#include "cuda/host/latency_supports.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr int64_t kMostBlocks = 65535;  // in a grid's y and z
constexpr int64_t kChunkElements = 8;   // of 16 bits in 16 bytes
constexpr int64_t kLargestHeadDim = 128;

std::string refuse_types(const ForwardProblem& p) {
  if (p.dtype != DType::f16 && p.dtype != DType::bf16) {
    return fmt::format("q: dtype is {}, wanted f16 or bf16", to_string(p.dtype));
  }
  if (p.o_dtype != p.dtype) {
    return fmt::format("o: dtype is {}, wanted that of q, {}", to_string(p.o_dtype),
                       to_string(p.dtype));
  }
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p) {
  if (std::string refusal = refuse_rows(p); !refusal.empty()) return refusal;
  for (const auto& [name, count] : {std::pair{"batch", p.batch}, std::pair{"heads", p.heads_q}}) {
    if (count > kMostBlocks) {
      return fmt::format("q: {} is {}, wanted at most {}", name, count, kMostBlocks);
    }
  }
  for (const auto& [name, head_dim] :
       {std::pair{"q", p.head_dim_qk}, std::pair{"v", p.head_dim_v}}) {
    if (head_dim < kChunkElements || head_dim % kChunkElements != 0 || head_dim > kLargestHeadDim) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {} up to {}", name,
                         head_dim, kChunkElements, kLargestHeadDim);
    }
  }
  return {};
}

std::string refuse_layout(const ForwardProblem& p, bool tensor_maps) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  struct Input {
    std::string_view name;
    const RowStrides& stride;
    int64_t heads, rows;
  };
  for (const Input& input :
       {Input{"q", p.q, p.heads_q, rows_q}, Input{"k", p.k, p.heads_kv, rows_kv},
        Input{"v", p.v, p.heads_kv, rows_kv}}) {
    const auto& [name, stride, heads, rows] = input;
    std::string refusal = misaligned_rows(name, stride, p.dtype, batch, heads, rows);
    if (refusal.empty() && tensor_maps)
      refusal = unmappable_strides(name, stride, batch, heads, rows);
    if (!refusal.empty()) return refusal;
  }
  return misaligned_rows("o", p.o, p.dtype, batch, p.heads_q, rows_q);
}

std::string refuse_features(const ForwardProblem& p) {
  for (const auto& [name, present] :
       {std::pair{"bias", p.bias.present}, std::pair{"mask", p.mask.present},
        std::pair{"alibi_slopes", p.alibi_slopes.present}, std::pair{"sinks", p.sinks.present}}) {
    if (present) return fmt::format("{}: is given, wanted none", name);
  }
  if (!(p.softmax_scale > 0) || std::isinf(p.softmax_scale)) {
    return fmt::format("softmax_scale: is {}, wanted more than 0", p.softmax_scale);
  }
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  return {};
}

}  // namespace

std::string latency_refusal(const ForwardProblem& problem, bool tensor_maps) {
  std::string refusal = refuse_types(problem);
  if (refusal.empty()) refusal = refuse_sizes(problem);
  if (refusal.empty()) refusal = refuse_features(problem);
  if (refusal.empty()) refusal = refuse_layout(problem, tensor_maps);
  return refusal;
}

}  // namespace flashcore::cuda::host
