#include "cuda/forward_sm80/throughput/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/splits.hpp"
#include "cuda/host/grouped_heads.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "kernel/seen_by_choice.hpp"
#include "problem/dtypes.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

constexpr int64_t kChunkElements = 8;  // of 16 bits in a 16-byte chunk
// Rows begin before this one: see ChunkStrides.
constexpr int64_t kMostChunks = std::numeric_limits<uint32_t>::max() - kPanelBytes / 16;

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
std::string refuse_device(const DeviceInfo& device, std::string_view targets) {
  if (device.compute_capability < 80) {
    return fmt::format("device: compute capability is {}, wanted 8.0 or later",
                       capability_text(device.compute_capability));
  }
  return refuse_code(targets, device.compute_capability);
}

std::string refuse_types(const ForwardProblem& p, Variant kernel) {
  const bool f32 = p.dtype == DType::f32;
  if (kernel == Variant::half && !is_16_bit(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16 or bf16", to_string(p.dtype));
  }
  if (kernel == Variant::f32 && !f32) {
    return fmt::format("q: dtype is {}, wanted f32", to_string(p.dtype));
  }
  if (kernel == Variant::fp8 && !is_fp8(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f8e4m3 or f8e5m2", to_string(p.dtype));
  }
  if (kernel == Variant::paged && !is_16_bit(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16 or bf16", to_string(p.dtype));
  }
  if (kernel != Variant::fp8 && !f32 && !is_16_bit(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16, bf16 or f32", to_string(p.dtype));
  }
  const bool fp8_output = kernel == Variant::fp8 && is_fp8(p.o_dtype);
  if (!is_16_bit(p.o_dtype) && p.o_dtype != DType::f32 && !fp8_output) {
    return fmt::format("o: dtype is {}, wanted f16, bf16 or f32", to_string(p.o_dtype));
  }
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p, Variant kernel) {
  const int config = config_index(p);
  if (config < 0) {
    const bool qk = p.head_dim_qk > kLargestHeadDim;
    return fmt::format("{}: head dimension is {}, wanted at most {}", qk ? "q" : "v",
                       qk ? p.head_dim_qk : p.head_dim_v, kLargestHeadDim);
  }
  if (std::string refusal = host::refuse_rows(p); !refusal.empty()) return refusal;
  const int block_q = kConfigs[static_cast<size_t>(config)].block_q();
  if (std::string refusal = host::refuse_tiles(p, block_q); !refusal.empty()) return refusal;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
  const int64_t tiles = (p.seqlen_q + block_q - 1) / block_q;
  const int64_t splits = most_splits(p.seqlen_kv);
  if (kernel == Variant::split_kv && p.batch * p.heads_q * tiles > kMost / splits) {
    return fmt::format(
        "k: {} rows make {} splits of each of {} tiles of queries, wanted at most "
        "{} in all",
        p.seqlen_kv, splits, p.batch * p.heads_q * tiles, kMost);
  }
  return {};
}

// Of the kernel for caches: what else than the band it would have to look for.
std::string refuse_features(const ForwardProblem& p) {
  if (p.o_dtype != p.dtype) {
    return fmt::format("o: dtype is {}, wanted that of q, {}", to_string(p.o_dtype),
                       to_string(p.dtype));
  }
  for (const auto& [name, present] : {std::pair{"bias", p.bias.present},
                                      {"mask", p.mask.present},
                                      {"alibi_slopes", p.alibi_slopes.present}}) {
    if (present) return fmt::format("{}: is given, wanted none", name);
  }
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  if (!(p.softmax_scale > 0)) {
    return fmt::format("softmax_scale: is {}, wanted a positive one", p.softmax_scale);
  }
  return {};
}

// Of the kernel for caches: rows are copied in pieces of 16 bytes, whose numbers have 32 bits.
std::string refuse_chunks(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (head_dim % kChunkElements != 0) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {}", name, head_dim,
                         kChunkElements);
    }
  }
  const int64_t batch = p.packed ? 1 : p.batch, rows_q = p.packed ? p.total_q : p.seqlen_q;
  for (const auto& [name, stride] : {std::pair{"q", &p.q}, {"o", &p.o}}) {
    std::string refusal = host::misaligned_rows(name, *stride, p.dtype, batch, p.heads_q, rows_q);
    if (!refusal.empty()) return refusal;
  }
  const int64_t lead = lead_of_keys(p), rows = rows_of_keys(p);
  for (const auto& [name, stride] : {std::pair{"k", &p.k}, {"v", &p.v}}) {
    std::string refusal = host::misaligned_rows(name, *stride, p.dtype, lead, p.heads_kv, rows);
    if (!refusal.empty()) return refusal;
    int64_t last = 0;  // row, in pieces
    for (const auto& [dimension, extent, step] : {std::tuple{"batch", lead, stride->batch},
                                                  {"head", p.heads_kv, stride->head},
                                                  {"row", rows, stride->row}}) {
      if (extent <= 1) continue;
      if (step < 0) {
        return fmt::format("{}: {} stride is {}, wanted 0 or more", name, dimension, step);
      }
      last = sum_of({last, product_of({extent - 1, step / kChunkElements})});
    }
    if (last >= kMostChunks) {
      return fmt::format("{}: its last row begins {} elements from the first, wanted less than {}",
                         name, product_of({last, kChunkElements}), kMostChunks * kChunkElements);
    }
  }
  return {};
}

// Of the kernel for caches.
std::string refuse_cache(const ForwardProblem& p) {
  if (!p.paging.present && !p.cache_leftpad.present) {
    return "page_table: is not given, wanted keys and values in a cache";
  }
  if (p.k_dtype != p.dtype) {
    return fmt::format("k: dtype is {}, wanted q's {}", to_string(p.k_dtype), to_string(p.dtype));
  }
  if (p.paging.present && p.paging.num_pages < 1) {
    return fmt::format("k: has {} pages, wanted 1 or more", p.paging.num_pages);
  }
  if (std::abs(p.paging.table_page) > std::numeric_limits<int32_t>::max()) {
    return fmt::format("{}: has a stride of {}, wanted less than 2^31",
                       p.paging.flat ? "kv_indices" : "page_table", p.paging.table_page);
  }
  if (p.seqlen_kv >= attention::kMostRows) {
    return fmt::format("k: has {} rows of an entry, wanted less than {}", p.seqlen_kv,
                       attention::kMostRows);
  }
  if (std::string refusal = refuse_features(p); !refusal.empty()) return refusal;
  return refuse_chunks(p);
}

// At most so many keys are seen by any row.
int64_t most_keys(const ForwardProblem& p) {
  int64_t most = p.seqlen_kv;
  if (p.band.right < 0) return most;
  if (p.band.left >= 0) most = std::min(most, p.band.left + p.band.right + 1);
  const bool is_known = p.alignment == Alignment::top_left ||
                        (p.alignment == Alignment::given && !p.causal_offsets.present);
  // The last row sees the furthest.
  if (is_known) most = std::min(most, p.seqlen_q + common_offset(p) + p.band.right);
  return std::max<int64_t>(most, 0);
}

}  // namespace

int config_index(const ForwardProblem& p) {
  const auto bytes = static_cast<int>(size_of(p.dtype));
  if (p.head_dim_v > kLargestHeadDim) return -1;
  if (is_fp8(p.dtype)) {
    const int config = choose_config(p.head_dim_qk, p.head_dim_v);
    return config < 0 ? config : config_with_fp8(config);
  }
  return choose_config(p.head_dim_qk, std::min<int64_t>(p.head_dim_v, launch_columns(bytes)),
                       bytes);
}

std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, Variant kernel) {
  if (std::string refusal = refuse_device(device, targets); !refusal.empty()) return refusal;
  if (kernel == Variant::dropout_state && !problem.dropout_state.present) {
    return "dropout_state: is not given, wanted dropout's seed and offset in memory";
  }
  if (std::string refusal = refuse_types(problem, kernel); !refusal.empty()) return refusal;
  if (std::string refusal = refuse_sizes(problem, kernel); !refusal.empty()) return refusal;
  return kernel == Variant::paged ? refuse_cache(problem) : std::string();
}

int64_t lead_of_keys(const ForwardProblem& p) {
  if (p.paging.present) return p.paging.num_pages;
  return p.packed ? 1 : p.batch;
}

int64_t rows_of_keys(const ForwardProblem& p) {
  if (p.paging.present) return p.paging.page_size;
  return p.packed ? p.total_kv : p.seqlen_kv;
}

bool splits_keys(const ForwardProblem& p, const PlanContext& context) {
  constexpr int64_t kMostQueries = 16, kFewestKeys = 2048;
  const ForwardProblem seen = seen_by_choice(p, context);
  if (seen.seqlen_q > kMostQueries || seen.seqlen_kv < kFewestKeys) return false;
  const ForwardProblem grouped = host::with_grouped_heads(p);
  return refuse_sizes(grouped, Variant::split_kv).empty() &&
         2 * grouped.batch * grouped.heads_q <= context.device.multiprocessors;
}

Features features_of(const ForwardProblem& p, bool batch_invariant) {
  if (is_fp8(p.dtype)) return Features::fp8;
  if (p.dropout_state.present) return Features::dropout_state;
  if (!is_16_bit(p.dtype) || p.o_dtype != p.dtype) return Features::all;
  if (p.mask.present || p.dropout_p > 0 || !(p.softmax_scale > 0)) return Features::all;
  if (p.head_dim_qk % kChunkElements != 0 || p.head_dim_v % kChunkElements != 0) {
    return Features::all;
  }
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t lead_kv = lead_of_keys(p), rows_kv = rows_of_keys(p);
  if (!host::misaligned_rows("q", p.q, p.dtype, batch, p.heads_q, rows_q).empty() ||
      !host::misaligned_rows("k", p.k, p.dtype, lead_kv, p.heads_kv, rows_kv).empty() ||
      !host::misaligned_rows("v", p.v, p.dtype, lead_kv, p.heads_kv, rows_kv).empty() ||
      !host::misaligned_rows("o", p.o, p.dtype, batch, p.heads_q, rows_q).empty()) {
    return Features::all;
  }
  if (!p.bias.present && !p.alibi_slopes.present && !(p.softcap > 0)) return Features::none;
  // Where rows see few keys one may be a key's value, which must come out exactly: only references
  // that follow every score make its P a power of two.
  constexpr int64_t kExactBelow = 64;
  if ((p.bias.present || p.alibi_slopes.present) &&
      (batch_invariant || most_keys(p) < kExactBelow)) {
    return Features::all;
  }
  return has_scores_kernel(config_index(p)) ? Features::scores : Features::all;
}

}  // namespace flashcore::cuda::forward_sm80::throughput
