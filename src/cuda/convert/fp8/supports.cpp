#include "cuda/convert/fp8/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "cuda/attention/kv_range.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::convert::fp8 {
namespace {

std::string refuse_sizes(const ForwardProblem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // Each sequence has a largest value, also one without rows.
  const int64_t rows_q = p.packed ? std::max(p.total_q, p.batch)
                                  : product_of({p.batch, std::max<int64_t>(p.seqlen_q, 1)});
  const int64_t rows_kv = p.packed ? p.total_kv : product_of({p.batch, p.seqlen_kv});
  for (const auto& [name, heads, rows] :
       {std::tuple{"q", p.heads_q, rows_q}, {"k", p.heads_kv, rows_kv}}) {
    if (const int64_t all = product_of({heads, rows}); all > kMost) {
      return fmt::format("{}: has {} rows in all heads, wanted at most {}", name, all, kMost);
    }
  }
  return {};
}

}  // namespace

Supports supports() {
  using enum Feature;
  return {.features = Features::all() - feature_sets::kCaches -
                      Features{tree_mask, v_transposed, amax_s, max_logit},
          .q = kFp8,
          .o = kUpTo32Bits,
          .head_dims = {.most = 4096},  // more than any kernel takes
          .rows_below = attention::kMostRows,
          .extra = [](const ForwardProblem& p, const PlanContext&) { return refuse_sizes(p); }};
}

}  // namespace flashcore::cuda::convert::fp8
