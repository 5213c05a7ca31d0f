#include "cuda/forward_fp8_sm89/throughput/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/host/fp8_refusals.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {
namespace {

constexpr int kCapability = 89;  // the first with e4m3 products

std::string refuse_device(const DeviceInfo& device, std::string_view targets) {
  if (device.compute_capability < kCapability) {
    return fmt::format("device: compute capability is {}, wanted {} or later",
                       capability_text(device.compute_capability), capability_text(kCapability));
  }
  return refuse_code(targets, device.compute_capability);
}

std::string refuse_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (!is_head_dim(head_dim)) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {} up to {}", name,
                         head_dim, kChunkBytes, kLargestHeadDim);
    }
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p) {
  std::string refusal = host::refuse_rows(p);
  return refusal.empty() ? host::refuse_tiles(p, kBlockQ) : refusal;
}

std::string refuse_layouts(const ForwardProblem& p) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  const struct {
    std::string_view name;
    const RowStrides& stride;
    DType dtype;
    int64_t heads, rows;
  } tensors[] = {{"q", p.q, p.dtype, p.heads_q, rows_q},
                 {"k", p.k, p.dtype, p.heads_kv, rows_kv},
                 {"v", p.v, p.dtype, p.heads_kv, rows_kv},
                 {"o", p.o, p.o_dtype, p.heads_q, rows_q}};
  for (const auto& [name, stride, dtype, heads, rows] : tensors) {
    std::string refusal = host::misaligned_rows(name, stride, dtype, batch, heads, rows);
    if (!refusal.empty()) return refusal;
  }
  return {};
}

}  // namespace

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = refuse_device(device, targets);
  for (const auto refuse : {host::refuse_e4m3_types, host::refuse_pair_options, refuse_head_dims,
                            host::refuse_block_scales, refuse_sizes, refuse_layouts}) {
    if (refusal.empty()) refusal = refuse(problem);
  }
  return refusal;
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
