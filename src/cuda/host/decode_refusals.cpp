#include "cuda/host/decode_refusals.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::string refuse_types(const ForwardProblem& p) {
  if (!is_16_bit(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16 or bf16", to_string(p.dtype));
  }
  if (!is_16_bit(p.o_dtype) && p.o_dtype != DType::f32) {
    return fmt::format("o: dtype is {}, wanted f16, bf16 or f32", to_string(p.o_dtype));
  }
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

}  // namespace

std::string refuse_decode(const ForwardProblem& p) {
  if (std::string refusal = refuse_types(p); !refusal.empty()) return refusal;
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  return {};
}

std::string refuse_decode_pairs(const ForwardProblem& p) {
  for (const auto& [name, present] :
       {std::pair{"bias", p.bias.present}, std::pair{"mask", p.mask.present}}) {
    if (present) return fmt::format("{}: is given, wanted none", name);
  }
  return {};
}

std::string refuse_decode_rows(const ForwardProblem& p) {
  if (std::string refusal = refuse_rows(p); !refusal.empty()) return refusal;
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  for (const auto& [name, rows] :
       {std::pair{"k", p.seqlen_kv}, std::pair{"q", product_of({p.seqlen_q, group})}}) {
    if (rows >= attention::kMostRows) {
      return fmt::format("{}: has {} rows of a key/value head, wanted less than {}", name, rows,
                         attention::kMostRows);
    }
  }
  const int64_t rows =
      product_of({p.packed ? p.total_q : product_of({p.batch, p.seqlen_q}), p.heads_q});
  if (rows > kMostBlocks) {
    return fmt::format("q: has {} rows in all heads, wanted at most {}", rows, kMostBlocks);
  }
  return {};
}

}  // namespace flashcore::cuda::host
