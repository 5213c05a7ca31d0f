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
#include "kernel/problem_for_heuristics.hpp"
#include "problem/dtypes.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

constexpr int64_t kChunkElements = 8;  // of 16 bits in a 16-byte chunk
// Rows begin before this one: see ChunkStrides.
constexpr int64_t kMostChunks = std::numeric_limits<uint32_t>::max() - kPanelBytes / 16;

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
std::string refuse_sizes(const ForwardProblem& p, Kind kind) {
  const int config = config_index(p);
  if (config < 0) {
    return fmt::format("q: head dimension is {} and v's is {}, wanted at most {}", p.head_dim_qk,
                       p.head_dim_v, kLargestHeadDim);
  }
  if (std::string refusal = refuse_rows(p, attention::kMostRows); !refusal.empty()) return refusal;
  const int block_q = kConfigs[static_cast<size_t>(config)].block_q();
  if (std::string refusal = host::refuse_tiles(p, block_q); !refusal.empty()) return refusal;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
  const int64_t tiles = (p.seqlen_q + block_q - 1) / block_q;
  const int64_t splits = most_splits(p.seqlen_kv);
  if (kind == Kind::split_kv && p.batch * p.heads_q * tiles > kMost / splits) {
    return fmt::format(
        "k: {} rows make {} splits of each of {} tiles of queries, wanted at most "
        "{} in all",
        p.seqlen_kv, splits, p.batch * p.heads_q * tiles, kMost);
  }
  return {};
}

// The kernel for caches copies rows in pieces of 16 bytes, whose numbers have 32 bits.
std::string refuse_chunks(const ForwardProblem& p) {
  const int64_t lead = lead_of_keys(p), rows = rows_of_keys(p);
  for (const auto& [name, stride] : {std::pair{"k", &p.k}, {"v", &p.v}}) {
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

// Refuses caches that the kernel for caches does not take.
std::string refuse_cache(const ForwardProblem& p) {
  if (p.paging.present && p.paging.num_pages < 1) {
    return fmt::format("k: has {} pages, wanted 1 or more", p.paging.num_pages);
  }
  if (std::abs(p.paging.table_page) > std::numeric_limits<int32_t>::max()) {
    return fmt::format("{}: has a stride of {}, wanted less than 2^31",
                       p.paging.flat ? "kv_indices" : "page_table", p.paging.table_page);
  }
  if (p.seqlen_kv >= attention::kMostRows) {
    return fmt::format("k: has {} rows per sequence, wanted less than {}", p.seqlen_kv,
                       attention::kMostRows);
  }
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
  if (is_fp8(p.dtype) || p.max_logit.present) {
    const int config = choose_config(p.head_dim_qk, p.head_dim_v);
    return config < 0 ? config : config_of_few(config);
  }
  return choose_config(p.head_dim_qk, std::min<int64_t>(p.head_dim_v, launch_columns(bytes)),
                       bytes);
}

Supports supports(Kind kind) {
  using enum Feature;
  const Dtypes inputs = kind == Kind::fp8        ? kFp8
                        : kind == Kind::f32      ? Dtypes{DType::f32}
                        : kind == Kind::split_kv ? kFloats
                                                 : kHalf;
  Supports supports{.features = feature_sets::kShapes | feature_sets::kScores |
                                feature_sets::kLayouts |
                                flashcore::Features{o_apart, dropout, dropout_state},
                    .q = inputs,
                    .o = kind == Kind::fp8 ? kUpTo32Bits : kFloats,
                    .head_dims = {.most = kLargestHeadDim},
                    .rows_below = attention::kMostRows,
                    .arch = {.least = 80},
                    .extra = [kind](const ForwardProblem& p, const PlanContext&) {
                      std::string refusal = refuse_sizes(p, kind);
                      return refusal.empty() && kind == Kind::paged ? refuse_cache(p) : refusal;
                    }};
  if (kind == Kind::half) {
    supports.features = supports.features | max_logit;
  } else if (kind == Kind::fp8) {
    supports.features = supports.features | feature_sets::kMagnitudes |
                        flashcore::Features{k_apart, block_scales, o_scale};
  } else if (kind == Kind::paged) {
    // It looks for nothing but the band, and copies whole chunks.
    supports.needs = feature_sets::kPages | cache_leftpad;
    supports.features = feature_sets::kShapes | feature_sets::kUnmapped | supports.needs | sinks;
    supports.head_dims.step = kChunkElements;
  }
  return supports;
}

bool splits_keys(const ForwardProblem& p, const PlanContext& context) {
  constexpr int64_t kMostQueries = 16, kFewestKeys = 2048;
  const ForwardProblem seen = problem_for_heuristics(p, context);
  if (seen.seqlen_q > kMostQueries || seen.seqlen_kv < kFewestKeys) return false;
  const ForwardProblem grouped = host::with_grouped_heads(p);
  return refuse_sizes(grouped, Kind::split_kv).empty() &&
         2 * grouped.batch * grouped.heads_q <= context.device.multiprocessors;
}

Features features_of(const ForwardProblem& p, bool batch_invariant) {
  if (is_fp8(p.dtype)) return Features::fp8;
  if (p.max_logit.present) return Features::logits;
  if (!is_16_bit(p.dtype) || p.o_dtype != p.dtype) return Features::all;
  if (p.mask.present || p.dropout_p > 0 || p.dropout_state.present || !p.scale_is_positive())
    return Features::all;
  if (p.head_dim_qk % kChunkElements != 0 || p.head_dim_v % kChunkElements != 0) {
    return Features::all;
  }
  if (flashcore::features_of(p).has(Feature::unaligned_rows)) return Features::all;
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
