#include "cuda/forward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <limits>
#include <tuple>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/mask_bits.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

// Refuses caches that the kernel for pages does not take.
std::string refuse_cache(const ForwardProblem& p) {
  const int config = choose_paged_config(p.head_dim_qk, p.head_dim_v, has_features(p));
  if (p.paging.num_pages < 1) {
    return fmt::format("k: has {} pages, wanted 1 or more", p.paging.num_pages);
  }
  if (box_rows(p.paging.page_size, kConfigs[static_cast<size_t>(config)]) == 0) {
    return fmt::format("k: page size is {}, wanted a multiple of {}", p.paging.page_size,
                       kLeastBoxRows);
  }
  const int64_t table = p.paging.flat
                            ? product_of({p.paging.table_pages, p.paging.table_page})
                            : sum_of({product_of({p.batch, p.paging.table_batch}),
                                      product_of({p.paging.table_pages, p.paging.table_page})});
  if (table > std::numeric_limits<int32_t>::max()) {
    return fmt::format("{}: has {} numbers from its first to its last, wanted less than 2^31",
                       p.paging.flat ? "kv_indices" : "page_table", table);
  }
  return {};
}

// Refuses biases that TMA does not copy.
std::string refuse_bias(const ForwardProblem& p) {
  constexpr int64_t kPiece = 8;  // elements of 16 bytes
  const PairInput& bias = p.bias;
  if (!bias.present) return {};
  if (bias.dtype != DType::f16 && bias.dtype != DType::bf16) {
    return fmt::format("bias: is {}, wanted f16 or bf16", to_string(bias.dtype));
  }
  if (p.seqlen_kv > 1 && bias.key != 1) {
    return fmt::format("bias: key stride is {}, wanted 1", bias.key);
  }
  for (const auto& [name, extent, stride] : {std::tuple{"batch", p.batch, bias.batch},
                                             {"head", p.heads_q, bias.head},
                                             {"query", p.seqlen_q, bias.query}}) {
    if (extent > 1 && (stride < 0 || stride % kPiece != 0)) {
      return fmt::format("bias: {} stride is {}, wanted a multiple of {} from 0", name, stride,
                         kPiece);
    }
  }
  return {};
}

std::string refuse_options(const ForwardProblem& p) {
  if (std::string refusal = refuse_bias(p); !refusal.empty()) return refusal;
  if (!p.mask.present) return {};
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t blocks = host::plan_mask_bits(p, attention::BitsAlong::keys).blocks;
  if (blocks <= kMost) return {};
  return fmt::format("mask: takes {} blocks to pack, wanted at most {}", blocks, kMost);
}

}  // namespace

Supports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | Features{sinks, softcap, scale_not_positive},
          .q = kHalf,
          .head_dims = {.most = kLargestHeadDim, .step = 8},
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = [](const ForwardProblem& p, const PlanContext&) {
            return host::refuse_tiles(p, kWarpgroupRows);  // the smallest tile's
          }};
}

Supports paged_supports() {
  Supports paged = but_not(
      supports(), [](const ForwardProblem& p, const PlanContext&) { return refuse_cache(p); });
  paged.needs = feature_sets::kPages;
  paged.features = paged.features | feature_sets::kPages;
  return paged;
}

Supports options_supports() {
  Supports options = but_not(
      supports(), [](const ForwardProblem& p, const PlanContext&) { return refuse_options(p); });
  options.needs = feature_sets::kPairs;
  options.features = options.features | feature_sets::kPairs;
  return options;
}

}  // namespace flashcore::cuda::forward_sm90::throughput
