// Copies tiles of K and V from pages. A tile consists of boxes, each of
// them rows of one page, and all of them count towards the tile's barrier.
//
//   a tile    | box 0 | box 1 | box 2 | box 3 |     lane i looks up the page of box i
//   pages     |    page 7     |    page 2     |
//
// A box without a key that the tile's queries see is filled with zeros: its page is not looked
// up, and may be anything. So may rows past the sequence's end in the last box: scores of such
// keys are masked, and if their values are not finite, rows are recomputed (exact_rows.cuh).
//
// Pages are looked up a tile ahead, so that no copy waits for the table.
// V's tiles are one or two behind K's, and come from the same pages.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/task.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Contiguous keys and values: one thread copies.
struct NoPages {
  __device__ __forceinline__ NoPages(const Params& /*p*/, int /*lane*/) {}

  __device__ __forceinline__ bool leads() const { return true; }
  __device__ __forceinline__ void meet() const {}
};

// Used by a whole warp: each lane holds the page of its box.
template <class S>
class PageCopies {
 public:
  __device__ __forceinline__ PageCopies(const PagedParams& p, int lane) : p_(p), lane_(lane) {}

  __device__ __forceinline__ bool leads() const { return lane_ == 0; }
  __device__ __forceinline__ void meet() const { __syncwarp(); }

  // Finds the pages of the next tile of K: a task's blocks go from last to first.
  __device__ __forceinline__ void find(const TaskInfo& task, const TaskPages& pages, int block) {
    if (block == task.end - 1) in_table_ = find_table(p_, pages.entry);
    older_ = newest_;
    newest_ =
        page_of(pages, block, block == task.end - 1 ? stored_page(task, pages, block) : ahead_);
    if (block > task.begin) ahead_ = stored_page(task, pages, block - 1);
  }

  template <class Tile>
  __device__ __forceinline__ void load_k(const unsigned char* shared, const CUtensorMap& map,
                                         const uint64_t& full, const TaskInfo& task,
                                         int block) const {
    load<Tile>(shared, map, full, task, block, newest_);
  }
  // behind: another tile of K was found after the one with the same keys.
  template <class Tile>
  __device__ __forceinline__ void load_v(const unsigned char* shared, const CUtensorMap& map,
                                         const uint64_t& full, const TaskInfo& task, int block,
                                         bool behind) const {
    load<Tile>(shared, map, full, task, block, behind ? older_ : newest_);
  }

 private:
  __device__ __forceinline__ int first_key(int block) const {
    return block * S::kBlockKv + lane_ * p_.box_rows;
  }
  __device__ __forceinline__ bool is_seen(const TaskPages& pages, int block) const {
    const int key = first_key(block);
    return lane_ < p_.boxes && key < pages.end_key && key + p_.box_rows > pages.first_key;
  }
  // Returns the index among the sequence's pages.
  __device__ __forceinline__ int page_number(const TaskInfo& task, int block) const {
    const int row = task.kv_row + first_key(block);
    return static_cast<int>(p_.cache.by_page_size.divide(static_cast<uint32_t>(row)));
  }

  // Starts the load of the table's entry; the first use waits for it.
  __device__ __forceinline__ int stored_page(const TaskInfo& task, const TaskPages& pages,
                                             int block) const {
    if (!is_seen(pages, block)) return 0;
    return __ldg(p_.cache.pages + in_table_ + page_number(task, block) * p_.cache.table_page);
  }

  // Returns the box's page; the one past the last, which reads as zeros, if no query sees the box.
  __device__ __forceinline__ int page_of(const TaskPages& pages, int block, int stored) const {
    if (!is_seen(pages, block)) return p_.cache.num_pages;
    const int page = attention::clamped(stored, 0, p_.cache.num_pages - 1);
    if (page != stored && p_.cache.page_status != nullptr) atomicExch(p_.cache.page_status, 1);
    return page;
  }

  template <class Tile>
  __device__ __forceinline__ void load(const unsigned char* shared, const CUtensorMap& map,
                                       const uint64_t& full, const TaskInfo& task, int block,
                                       int own_page) const {
    const uint32_t barrier = ptx::shared_address(&full);
    const uint32_t box_bytes = static_cast<uint32_t>(p_.box_rows) * Tile::kPanelRowBytes;
    const int own_row =
        task.kv_row + first_key(block) - page_number(task, block) * p_.cache.page_size;
    uint32_t to = ptx::shared_address(shared);
    if (leads()) ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);
#pragma unroll 1
    for (int i = 0; i < p_.boxes; ++i, to += box_bytes) {
      const int page = __shfl_sync(0xffffffffU, own_page, i);
      const int row = __shfl_sync(0xffffffffU, own_row, i);
      if (!leads()) continue;
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        ptx::tma_load_4d(to + panel * Tile::kPanelBytes, &map, barrier, panel * Tile::kPanelColumns,
                         row, task.kv_head, page);
      }
    }
  }

  const PagedParams& p_;
  int lane_;
  int in_table_ = 0;            // of the task's sequence
  int ahead_ = 0;               // in the table, of the tile after the newest
  int newest_ = 0, older_ = 0;  // pages of the last two tiles of K
};

}  // namespace flashcore::cuda::forward_sm90::throughput
