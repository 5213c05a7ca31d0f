// Decides how blocks of keys are divided into boxes of pages: page_copies.cuh. Tested on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "problem/entries.hpp"
#include "problem/problem.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// The last coordinate of a map of K or V in boxes counts multiples of `stride` elements. Pages and
// heads need `extent` of them.
struct BoxLead {
  BoxSteps steps;
  int extent;
  int64_t stride;
};

// Returns none if the strides have no such step. Strides of one page or one head are not used.
constexpr std::optional<BoxLead> box_lead(int64_t pages, int64_t heads, const RowStrides& stride) {
  const int64_t page = pages > 1 ? stride.batch : 0, head = heads > 1 ? stride.head : 0;
  if (page < 0 || head < 0) return {};
  const int64_t unit = page == 0 || head == 0 ? std::max(page, head) : std::min(page, head);
  if (unit == 0) return BoxLead{.steps = {.page = 0, .head = 0}, .extent = 1, .stride = 0};
  if (page % unit != 0 || head % unit != 0) return {};
  const int64_t extent =
      sum_of({product_of({pages - 1, page / unit}), product_of({heads - 1, head / unit}), 1});
  if (extent > std::numeric_limits<int>::max()) return {};
  return BoxLead{
      .steps = {.page = static_cast<int>(page / unit), .head = static_cast<int>(head / unit)},
      .extent = static_cast<int>(extent),
      .stride = unit};
}

// How blocks of keys are divided into boxes of so many rows. With whole rows, a box has
// all columns, which one tensor map has where pages and heads are one coordinate and
// columns are whole panels. Otherwise it is a panel of 8 rows, and the last coordinate is the page.
struct Boxes {
  int rows;
  bool whole_rows;
  BoxLead k, v;
};

// The page size is a multiple of kLeastBoxRows.
constexpr Boxes boxes_of(const ForwardProblem& p, const Config& config) {
  const std::optional<BoxLead> k = box_lead(p.paging.num_pages, p.heads_kv, p.k);
  const std::optional<BoxLead> v = box_lead(p.paging.num_pages, p.heads_kv, p.v);
  const bool panels = p.head_dim_qk % kPanelColumns == 0 && p.head_dim_v % kPanelColumns == 0;
  if (!panels || !k || !v) {
    constexpr BoxLead kPage{.steps = {.page = 1, .head = 0}, .extent = 0, .stride = 0};
    return {.rows = kLeastBoxRows, .whole_rows = false, .k = kPage, .v = kPage};
  }
  return {.rows = box_rows(p.paging.page_size, config), .whole_rows = true, .k = *k, .v = *v};
}

}  // namespace flashcore::cuda::forward_sm90::throughput
