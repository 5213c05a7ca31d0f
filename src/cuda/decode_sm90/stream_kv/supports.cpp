#include "cuda/decode_sm90/stream_kv/supports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/attention/kv_range.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/dtype.hpp"
#include "problem/entries.hpp"
#include "problem/row_strides.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {
namespace {

constexpr int64_t kMostTiles = 16;  // of rows: beyond them keys are read too often

int64_t rows_of(const ForwardProblem& p) {
  return product_of({p.seqlen_q, p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1});
}

const Config& config_of(const ForwardProblem& p) {
  return kConfigs[static_cast<size_t>(config_index(p))];
}

std::string refuse_sizes(const ForwardProblem& p, const PlanContext&) {
  if (p.tree_mask.present && size_of(p.k_dtype) == 1) {
    return fmt::format("tree_mask: is given with a k of {}, wanted a k of 16 bits",
                       to_string(p.k_dtype));
  }
  if (config_index(p) < 0) {
    const bool qk = p.head_dim_qk > kLargestHeadDim;
    return fmt::format("{}: head dimension is {}, wanted at most {}", qk ? "q" : "v",
                       qk ? p.head_dim_qk : p.head_dim_v, kLargestHeadDim);
  }
  if (std::string refusal = host::refuse_decode_rows(p); !refusal.empty()) return refusal;
  if (p.batch > kMostEntries) {
    return fmt::format("q: batch is {}, wanted at most {}", p.batch, kMostEntries);
  }
  const int64_t most_rows = kMostTiles * config_of(p).rows();
  if (rows_of(p) > most_rows) {
    return fmt::format("q: has {} rows of a key/value head, wanted at most {}", rows_of(p),
                       most_rows);
  }
  // As the second kernel counts them.
  if (const int64_t rows = product_of({p.batch, p.heads_kv, rows_of(p)}); rows > kMostJoinRows) {
    return fmt::format("q: has {} rows, {} queries per sequence, wanted at most {}", rows,
                       p.seqlen_q, kMostJoinRows);
  }
  const int64_t granules = product_of({p.batch, p.heads_kv, divide_up(p.seqlen_kv, kGranule)});
  if (granules > kMostGranules) {
    return fmt::format("k: has {} pieces of {} keys, wanted at most {}", granules, kGranule,
                       kMostGranules);
  }
  return {};
}

// Panels of columns that a row of so many has in shared memory.
int64_t panels_of(int64_t columns, const Config& config) {
  return divide_up(columns, config.panel_columns());
}

bool is_mappable(const ForwardProblem& p, const RowStrides& stride, int64_t head_dim) {
  const int64_t lead = p.paging.present ? p.paging.num_pages : p.packed ? 1 : p.batch;
  const int64_t rows = p.paging.present ? p.paging.page_size : p.packed ? p.total_kv : p.seqlen_kv;
  const Config& config = config_of(p);
  return lead > 0 && rows > 0 && p.heads_kv > 0 && head_dim > 0 &&
         panels_of(head_dim, config) == panels_of(config.head_dim, config) &&
         misaligned_rows("", stride, p.k_dtype, lead, p.heads_kv, rows).empty() &&
         unmappable_strides("", stride, lead, p.heads_kv, rows).empty();
}

}  // namespace

int config_index(const ForwardProblem& p) {
  return choose_config(p.head_dim_qk, p.head_dim_v, static_cast<int>(size_of(p.k_dtype)),
                       p.k_dtype == DType::f8e5m2, rows_of(p));
}

int64_t tile_count(const ForwardProblem& p) {
  return std::max<int64_t>(1, divide_up(rows_of(p), config_of(p).rows()));
}

Shares shares_of(const ForwardProblem& p, const PlanContext& context) {
  const int64_t items = product_of({p.batch, p.heads_kv});
  const int64_t blocks = int64_t{context.device.multiprocessors} / tile_count(p);
  const int64_t most =
      std::max<int64_t>(1, std::min(blocks, product_of({items, divide_up(p.seqlen_kv, kGranule)})));
  // Where items are not equally long, or are cut by themselves, fewer shares cut as many.
  if (entries_vary(p) || p.cache_leftpad.present || p.paging.flat || context.batch_invariant) {
    return {most, false};
  }
  const attention::Entry entry{.len_q = static_cast<int>(p.seqlen_q),
                               .len_kv = static_cast<int>(p.seqlen_kv),
                               .rows_q = static_cast<int>(p.seqlen_q),
                               .offset = common_offset(p)};
  const int granules = attention::decode::seen_keys(entry, p.band, 1).granules();
  if (granules == 0) return {most, false};
  const int64_t count = share_count(items, granules, blocks, config_of(p).filling_blocks());
  return {count, items % count == 0};
}

bool has_boxes(const ForwardProblem& p) {
  return is_mappable(p, p.k, p.head_dim_qk) && is_mappable(p, p.v, p.head_dim_v) &&
         (!p.paging.present || p.paging.page_size % config_of(p).tile_keys == 0);
}

Supports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kCaches | feature_sets::kLayouts |
                      Features{alibi_slopes, sinks, softcap, scale_not_positive, o_apart, tree_mask,
                               block_scales},
          .q = kHalf,
          .o = kFloats,
          .rows_below = attention::kMostRows,
          .extra = refuse_sizes};
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
