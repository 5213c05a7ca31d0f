#include "cuda/forward_fp8/v_rows/supports.hpp"

#include <fmt/format.h>

#include <limits>

#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8::v_rows {
namespace {

constexpr int64_t kChunkBytes = 16, kAlignment = 256;
constexpr int64_t kBlockColumns = 128, kBlockDims = 64;

int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t pitch_of(const ForwardProblem& p) { return up_to(p.head_dim_v, kChunkBytes); }

int64_t rows_bytes(const ForwardProblem& p) {
  const int64_t bytes = product_of({p.batch, p.heads_kv, p.seqlen_kv, pitch_of(p)});
  return bytes >= kTooLarge - kAlignment ? kTooLarge : up_to(bytes, kAlignment);
}

ForwardProblem in_rows(const ForwardProblem& p) {
  ForwardProblem inner = p;
  inner.v_transposed = false;
  inner.v_columns = 0;
  const int64_t pitch = pitch_of(p), head = product_of({p.seqlen_kv, pitch});
  inner.v = {.batch = product_of({p.heads_kv, head}), .head = head, .row = pitch};
  return inner;
}

int64_t blocks_of(const ForwardProblem& p) {
  return product_of({p.batch, p.heads_kv, (p.seqlen_kv + kBlockColumns - 1) / kBlockColumns,
                     (p.head_dim_v + kBlockDims - 1) / kBlockDims});
}

std::string refusal(const ForwardProblem& p, const DeviceInfo& device, std::string_view targets) {
  if (!p.v_transposed) return "v_transposed: is false, wanted true, as V's rows are made of it";
  if (std::string code = refuse_code(targets, device.compute_capability); !code.empty()) {
    return code;
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (blocks_of(p) > kMost || rows_bytes(p) == kTooLarge) {
    return fmt::format("v: has {} heads of {} rows of {}, wanted at most {} blocks of {} x {}",
                       product_of({p.batch, p.heads_kv}), p.seqlen_kv, p.head_dim_v, kMost,
                       kBlockColumns, kBlockDims);
  }
  return {};
}

}  // namespace flashcore::cuda::forward_fp8::v_rows
