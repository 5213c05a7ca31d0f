#include "cuda/decode_sm80/split_kv/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"
#include "cuda/host/launch_limits.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
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

std::string refuse_features(const ForwardProblem& p) {
  for (const auto& [name, present] :
       {std::pair{"bias", p.bias.present}, std::pair{"mask", p.mask.present}}) {
    if (present) return fmt::format("{}: is given, wanted none", name);
  }
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  return {};
}

std::string refuse_sizes(const ForwardProblem& p, const PlanContext& context) {
  if (config_index(p) < 0) {
    const bool qk = p.head_dim_qk > kLargestHeadDim;
    return fmt::format("{}: head dimension is {}, wanted at most {}", qk ? "q" : "v",
                       qk ? p.head_dim_qk : p.head_dim_v, kLargestHeadDim);
  }
  if (std::string refusal = host::refuse_rows(p); !refusal.empty()) return refusal;
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
  if (const int64_t units = unit_count(p, context); units > kMostUnits) {
    return fmt::format("q: makes {} units of work, wanted at most {}", units, kMostUnits);
  }
  return {};
}

}  // namespace

int config_index(const ForwardProblem& p) {
  return choose_config(p.head_dim_qk, p.head_dim_v, static_cast<int>(size_of(p.kv_dtype)));
}

int64_t block_count(const ForwardProblem& p, const DeviceInfo& device) {
  const Config& config = kConfigs[static_cast<size_t>(config_index(p))];
  return std::max<int64_t>(
      1, int64_t{device.multiprocessors} * blocks_on_sm(config, device.shared_memory_a_block));
}

int64_t unit_count(const ForwardProblem& p, const PlanContext& context) {
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const int64_t items =
      most_items(p.batch, p.heads_kv, group, p.seqlen_q, p.packed ? p.total_q : -1);
  return most_units(items, p.seqlen_kv, block_count(p, context.device), context.batch_invariant);
}

std::string refusal(const ForwardProblem& problem, const PlanContext& context,
                    std::string_view targets) {
  const DeviceInfo& device = context.device;
  if (device.compute_capability < 80) {
    return fmt::format("device: compute capability is {}, wanted 8.0 or later",
                       capability_text(device.compute_capability));
  }
  if (std::string refusal = refuse_code(targets, device.compute_capability); !refusal.empty()) {
    return refusal;
  }
  if (std::string refusal = refuse_types(problem); !refusal.empty()) return refusal;
  if (std::string refusal = refuse_features(problem); !refusal.empty()) return refusal;
  return refuse_sizes(problem, context);
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
