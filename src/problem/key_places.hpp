// The memory locations of a batch entry's keys in K and V: in one piece, packed, or in pages.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// Indices into K and V: `lead` into the leading dimension (batch entry or page), `row` within a
// head. scale_row is relative to the start of the entry or page, as scales are.
struct KeyPlace {
  int64_t lead = 0;
  int64_t row = 0;
  int64_t scale_row = 0;
};

// Finds the keys of entry b of a run whose lengths the host can read. Page indices are clamped to
// the existing pages, so that no table makes a kernel read outside of K and V.
class KeyPlaces {
 public:
  KeyPlaces(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b)
      : lead_(b), begin_(s.kv_begin), page_size_(p.paging.present ? p.paging.page_size : 0) {
    if (p.paging.present) {
      stride_ = p.paging.table_page;
      last_page_ = p.paging.num_pages - 1;
      pages_ = p.paging.flat ? args.kv_indices : args.page_table;
      first_page_ =
          p.paging.flat ? args.kv_indptr[p.kv_indptr.at(b, 0)] * stride_ : b * p.paging.table_batch;
    } else if (p.packed) {
      scales_begin_ = args.cu_seqlens_kv[p.cu_seqlens_kv.at(b, 0)];
    }
  }

  KeyPlace of(int64_t key) const {
    const int64_t row = begin_ + key;
    if (page_size_ == 0) return {lead_, row, row - scales_begin_};
    return {page(row / page_size_), row % page_size_, row % page_size_};
  }

  // Fills in the places of keys [first, first + count).
  void fill(int64_t first, int64_t count, KeyPlace* out) const {
    while (count > 0) {
      KeyPlace place = of(first);
      const int64_t together = page_size_ == 0 ? count : std::min(count, page_size_ - place.row);
      for (int64_t n = 0; n < together; ++n) {
        *out++ = place;
        ++place.row;
        ++place.scale_row;
      }
      first += together;
      count -= together;
    }
  }

  // The page index as stored, which may be out of range, and the clamped index that is read.
  int64_t stored_page(int64_t n) const { return pages_[first_page_ + n * stride_]; }
  int64_t page(int64_t n) const { return std::clamp<int64_t>(stored_page(n), 0, last_page_); }

 private:
  int64_t lead_;
  int64_t begin_;
  int64_t page_size_;  // 0: not in pages
  int64_t scales_begin_ = 0;
  const int32_t* pages_ = nullptr;  // null is allowed for an empty table
  int64_t first_page_ = 0;
  int64_t stride_ = 0;
  int64_t last_page_ = 0;
};

// The range of the entry's own pages that hold a key that some query of the entry sees.
struct PageRange {
  int64_t begin = 0;
  int64_t end = 0;
};
PageRange pages_seen(const ForwardProblem& p, const Sequence& s);

}  // namespace flashcore
