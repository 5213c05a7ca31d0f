#include "cuda/forward_fp8/converted/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "cuda/host/launch_limits.hpp"
#include "kernel/device_code.hpp"
#include "problem/dtypes.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8::converted {
namespace {

std::string refuse_types(const ForwardProblem& p) {
  if (!is_fp8(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f8e4m3 or f8e5m2", to_string(p.dtype));
  }
  if (p.o_dtype == DType::f64) return "o: dtype is f64, wanted f32, f16, bf16 or fp8";
  return {};
}

std::string refuse_features(const ForwardProblem& p) {
  if (p.amax_s.present) return "amax_s: is asked for, wanted O, LSE and amax_o alone";
  return {};
}

std::string refuse_sizes(const ForwardProblem& p) {
  constexpr int64_t kMostColumns = 4096;  // more than any kernel takes
  const int64_t columns = std::max(p.head_dim_qk, p.head_dim_v);
  if (columns > kMostColumns) {
    return fmt::format("{}: head dimension is {}, wanted at most {}",
                       columns == p.head_dim_qk ? "q" : "v", columns, kMostColumns);
  }
  std::string refusal = host::refuse_rows(p);
  if (!refusal.empty()) return refusal;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // Each entry has a largest value, also one without rows.
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

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = refuse_types(problem);
  if (refusal.empty()) refusal = refuse_code(targets, device.compute_capability);
  if (refusal.empty()) refusal = refuse_features(problem);
  return refusal.empty() ? refuse_sizes(problem) : refusal;
}

}  // namespace flashcore::cuda::forward_fp8::converted
