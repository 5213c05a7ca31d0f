#include "cuda/forward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <limits>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

// Of the kernel for pages.
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

}  // namespace

Supports supports(TileChoice tile) {
  using enum Feature;
  const Features pages = tile == TileChoice::pages ? feature_sets::kPages : Features();
  return {.features = feature_sets::kShapes | pages | Features{sinks, softcap, scale_not_positive},
          .needs = pages,
          .q = kHalf,
          .head_dims = {.most = kLargestHeadDim, .step = 8},
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = [tile](const ForwardProblem& p, const PlanContext&) {
            std::string refusal = host::refuse_tiles(p, kWarpgroupRows);  // the smallest tile's
            if (!refusal.empty() || tile == TileChoice::best) return refusal;
            return tile == TileChoice::pages ? refuse_cache(p) : refuse_single_tile(p);
          }};
}

}  // namespace flashcore::cuda::forward_sm90::throughput
