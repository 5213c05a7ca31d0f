// Copies blocks of K, or of V, from pages to tiles. A block consists of boxes, each of them
// rows of one page, and all of them count towards the tile's barrier.
//
//   a block   | box 0 | box 1 | box 2 | box 3 |     lane i looks up the page of box i and copies it
//   pages     |    page 7     |    page 2     |
//
// A box has all columns: the tile has the panels of 8 rows together. Where the last
// panel is not whole, boxes are 8 rows, and each panel is a copy of its own.
//
// A box without a key that the tile's queries see is filled with zeros: its page is not looked
// up, and may be anything. So may rows past the sequence's end in the last box: scores of such
// keys are masked, and if their values are not finite, rows are recomputed (exact_rows.cuh).
//
// The table is read two blocks ahead, and places are found before the wait for the tile's slot:
// copies start right after it.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_cache.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Used by a whole warp.
template <class Tile>
class PageCopies {
 public:
  __device__ __forceinline__ PageCopies(const PagedParams& p, const CUtensorMap& map,
                                        const BoxSteps& steps, int lane)
      : p_(p), map_(map), steps_(steps), lane_(lane) {}

  // Starts to read the numbers of a block's pages. A table has less than 2^31 numbers.
  __device__ __forceinline__ void look_up(const TaskInfo& task, const TaskPages& pages, int block) {
    const int key = block * Tile::kRows + lane_ * p_.box_rows;
    const auto page_size = static_cast<uint32_t>(p_.cache.page_size);
    stored_ = 0;
    next_group_ = page_size / kLeastBoxRows;  // past the page: zeros
    if (lane_ >= p_.boxes || key >= pages.end_key || key + p_.box_rows <= pages.first_key) return;
    const auto row = static_cast<uint32_t>(task.kv_row + key);
    const uint32_t number = p_.cache.by_page_size.divide(row);
    stored_ = __ldg(p_.cache.pages + pages.in_table +
                    static_cast<int>(number) * static_cast<int>(p_.cache.table_page));
    next_group_ = (row - number * page_size) / kLeastBoxRows;
  }

  // Finds the place of each box of the block that was looked up last.
  __device__ __forceinline__ void find(const TaskInfo& task) {
    const int page = attention::clamped(stored_, 0, p_.cache.num_pages - 1);
    if (page != stored_ && p_.cache.page_status != nullptr) atomicExch(p_.cache.page_status, 1);
    lead_ = page * steps_.page + task.kv_head * steps_.head;
    group_ = next_group_;
  }

  // Copies the block that was found last.
  __device__ __forceinline__ void copy(uint32_t tile, uint32_t full, const TaskInfo& task) const {
    if (lane_ == 0) ptx::mbarrier_arrive_expect(full, Tile::kBytes);
    __syncwarp();
    if (lane_ >= p_.boxes) return;
    const uint32_t to = tile + static_cast<uint32_t>(lane_ * p_.box_rows) * Tile::kRowBytes;
    if (p_.whole_rows) {
      ptx::tma_load_5d(to, &map_, full, 0, 0, 0, static_cast<int>(group_), lead_);
      return;
    }
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      ptx::tma_load_5d(to + panel * Tile::kPanelBytes, &map_, full, panel * Tile::kPanelColumns, 0,
                       static_cast<int>(group_), task.kv_head, lead_);
    }
  }

 private:
  const PagedParams& p_;
  const CUtensorMap& map_;
  const BoxSteps& steps_;
  int lane_;
  int stored_;           // in the table, of this lane's box
  uint32_t next_group_;  // of 8 rows in that page
  uint32_t group_;       // where this lane's box of the next copy lies
  int lead_;
};

}  // namespace flashcore::cuda::forward_sm90::throughput
