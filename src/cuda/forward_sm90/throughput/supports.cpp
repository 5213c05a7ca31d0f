#include "cuda/forward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

constexpr int kCapability = 90;
constexpr int64_t kChunkElements = 8;  // of 16 bits in 16 bytes

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::string refuse_device(const DeviceInfo& device, std::string_view targets) {
  if (device.compute_capability != kCapability) {
    return fmt::format("device: compute capability is {}, wanted {}",
                       capability_text(device.compute_capability), capability_text(kCapability));
  }
  return refuse_code(targets, kCapability);
}

std::string refuse_types(const ForwardProblem& p) {
  if (!is_16_bit(p.dtype)) {
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

std::string refuse_features(const ForwardProblem& p) {
  if (p.bias.present) return "bias: is given, wanted none";
  if (p.mask.present) return "mask: is given, wanted none";
  if (p.alibi_slopes.present) return "alibi_slopes: is given, wanted none";
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  return {};
}

std::string refuse_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (head_dim > kLargestHeadDim || head_dim % kChunkElements != 0) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {} up to {}", name,
                         head_dim, kChunkElements, kLargestHeadDim);
    }
  }
  return {};
}

// Of the kernel for pages: what it computes of caches.
std::string refuse_cache(const ForwardProblem& p) {
  if (!p.paging.present) return "page_table: is not given, wanted keys and values in pages";
  if (p.cache_leftpad.present) return "cache_leftpad: is given, wanted keys from the first row";
  if (p.k_dtype != p.dtype) {
    return fmt::format("k: dtype is {}, wanted q's {}", to_string(p.k_dtype), to_string(p.dtype));
  }
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

// Of a tile by name: where there is no other.
std::string refuse_single_tile(const ForwardProblem& p) {
  if (tile_candidates(p).size() > 1) return {};
  if (has_features(p)) {
    return fmt::format("softcap: is {} and the scale {}, wanted 0 and a positive one", p.softcap,
                       p.softmax_scale);
  }
  return fmt::format("q: head dimension is {} and that of v {}, which have one tile only",
                     p.head_dim_qk, p.head_dim_v);
}

std::string refuse_sizes(const ForwardProblem& p) {
  const std::string refusal = host::refuse_rows(p);
  return refusal.empty() ? host::refuse_tiles(p, kWarpgroupRows) : refusal;  // the smallest tile's
}

std::string refuse_strides(std::string_view name, const RowStrides& stride, DType dtype,
                           int64_t batch, int64_t heads, int64_t rows) {
  const std::string unmappable = host::unmappable_strides(name, stride, batch, heads, rows);
  return unmappable.empty() ? host::misaligned_rows(name, stride, dtype, batch, heads, rows)
                            : unmappable;
}

std::string refuse_layouts(const ForwardProblem& p) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t lead_kv = lead_of_keys(p), rows_kv = rows_of_keys(p);
  std::string refusal = refuse_strides("q", p.q, p.dtype, batch, p.heads_q, rows_q);
  if (refusal.empty()) refusal = refuse_strides("k", p.k, p.dtype, lead_kv, p.heads_kv, rows_kv);
  if (refusal.empty()) refusal = refuse_strides("v", p.v, p.dtype, lead_kv, p.heads_kv, rows_kv);
  if (refusal.empty()) refusal = refuse_strides("o", p.o, p.dtype, batch, p.heads_q, rows_q);
  return refusal;
}

}  // namespace

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, TileChoice tile) {
  std::string refusal = refuse_device(device, targets);
  for (const auto refuse :
       {refuse_types, refuse_features, refuse_head_dims, refuse_sizes, refuse_layouts}) {
    if (refusal.empty()) refusal = refuse(problem);
  }
  if (!refusal.empty() || tile == TileChoice::best) return refusal;
  return tile == TileChoice::pages ? refuse_cache(problem) : refuse_single_tile(problem);
}

}  // namespace flashcore::cuda::forward_sm90::throughput
