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

}  // namespace flashcore::cuda::forward_sm90::throughput
