#include "cuda/forward_fp8_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/host/fp8_refusals.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

constexpr int kCapability = 90;

std::string refuse_device(const DeviceInfo& device, std::string_view targets) {
  if (device.compute_capability != kCapability) {
    return fmt::format("device: compute capability is {}, wanted {}",
                       capability_text(device.compute_capability), capability_text(kCapability));
  }
  return refuse_code(targets, kCapability);
}

std::string refuse_option_types(const ForwardProblem& p) {
  if (p.dtype != DType::f8e4m3 && p.dtype != DType::f8e5m2) {
    return fmt::format("q: dtype is {}, wanted f8e4m3 or f8e5m2", to_string(p.dtype));
  }
  if (p.o_dtype == DType::f64) return "o: dtype is f64, wanted f32, f16, bf16, f8e4m3 or f8e5m2";
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

std::string refuse_features(const ForwardProblem& p) {
  if (p.packed) return "cu_seqlens_q: is given, wanted batch entries of their own";
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  return host::refuse_pair_options(p);
}

std::string refuse_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (!takes_head_dim(head_dim) || head_dim != p.head_dim_qk) {
      return fmt::format("{}: head dimension is {}, wanted 64 or 128, the same for q and v", name,
                         head_dim);
    }
  }
  return {};
}

std::string refuse_option_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (choose_option_config(head_dim, head_dim) < 0) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {} up to {}", name,
                         head_dim, kHeadDimStep, kOptionConfigs.back().head_dim);
    }
  }
  return {};
}

// Tiles are counted in 32 bits, with the parts of V's columns.
std::string refuse_option_sizes(const ForwardProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t slots_q = p.packed ? p.total_q / kWarpgroupRows + p.batch : 0;
  const int64_t slots_kv = p.packed ? p.total_kv / kBlockKv + p.batch : 0;
  for (const auto& [name, tiles] :
       {std::pair{"q", product_of({p.packed ? slots_q : p.seqlen_q / kWarpgroupRows + 1,
                                   p.packed ? 1 : p.batch, p.heads_q})},
        {"k", product_of({slots_kv, p.heads_kv, kBlockKv})}}) {
    if (tiles > kMost) {
      return fmt::format("{}: has {} tiles in all heads, wanted at most {}", name, tiles, kMost);
    }
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p) {
  std::string refusal = host::refuse_rows(p);
  if (!refusal.empty()) return refusal;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
  const int64_t blocks = (p.seqlen_kv + kBlockKv - 1) / kBlockKv;
  if (product_of({blocks, p.batch, p.heads_kv}) > kMost) {
    return fmt::format("k: has {} blocks of {} keys in each of {} heads, wanted at most {} in all",
                       blocks, kBlockKv, product_of({p.batch, p.heads_kv}), kMost);
  }
  return host::refuse_tiles(p, kWarpgroupRows);
}

// The tensors' own: a packed tensor has one batch entry.
std::string refuse_layouts(const ForwardProblem& p) {
  const int64_t batch = p.packed ? 1 : p.batch, rows_q = p.packed ? p.total_q : p.seqlen_q,
                rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  const struct {
    std::string_view name;
    const RowStrides& stride;
    DType dtype;
    int64_t heads, rows;
  } tensors[] = {{"q", p.q, p.dtype, p.heads_q, rows_q},
                 {"k", p.k, p.dtype, p.heads_kv, rows_kv},
                 {"v", p.v, p.dtype, p.heads_kv, p.v_transposed ? p.head_dim_v : rows_kv},
                 {"o", p.o, p.o_dtype, p.heads_q, rows_q}};
  for (const auto& [name, stride, dtype, heads, rows] : tensors) {
    std::string refusal = host::unmappable_strides(name, stride, batch, heads, rows);
    if (refusal.empty()) {
      refusal = host::misaligned_rows(name, stride, dtype, batch, heads, rows);
    }
    if (!refusal.empty()) return refusal;
  }
  return {};
}

}  // namespace

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = refuse_device(device, targets);
  for (const auto refuse : {host::refuse_e4m3_types, refuse_features, refuse_head_dims,
                            host::refuse_block_scales, refuse_sizes, refuse_layouts}) {
    if (refusal.empty()) refusal = refuse(problem);
  }
  return refusal;
}

std::string refuse_three(const ForwardProblem& problem) {
  if (problem.head_dim_qk == kConfigs[kThreeAt128].head_dim) return {};
  return fmt::format("q: head dimension is {}, wanted {}", problem.head_dim_qk,
                     kConfigs[kThreeAt128].head_dim);
}

std::string option_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets) {
  std::string refusal = refuse_device(device, targets);
  for (const auto refuse :
       {refuse_option_types, host::refuse_pair_options, refuse_option_head_dims,
        host::refuse_block_scales, refuse_sizes, refuse_option_sizes, refuse_layouts}) {
    if (refusal.empty()) refusal = refuse(problem);
  }
  return refusal;
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
