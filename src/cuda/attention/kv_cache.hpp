// The location of a sequence's keys in a cache: src/problem/key_places.hpp for kernels.
//
//   rows of a sequence's cache  | padding | key 0 | key 1 | ... | last key in use | free ... |
//   pages                       | page table[0] | page table[1] | ...
//
// For any lengths and tables, nothing outside of K, V and the table is read: all
// numbers from memory are clamped. constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/entry.hpp"
#include "cuda/attention/forward_params.hpp"

namespace flashcore::cuda::attention {

// Parameters in addition to ForwardParams. With pages,
// batch strides of K and V lead from page to page.
struct KvCacheParams {
  const int32_t* pages;  // the page table, or the flat list; null: contiguous K and V
  int64_t table_batch, table_page;
  bool flat;
  int table_pages;  // columns of the table, or elements of the flat list
  int num_pages, page_size;
  Divisor by_page_size;
  EntryVector indptr, last_page_len, leftpad;
  int32_t* page_status;  // null: not requested
};

struct CachedEntry {
  Entry entry;       // kv_row: the row of key 0, in the sequence's cache or in packed K and V
  int scale_row;     // the row of key 0, counted as for scales
  int64_t in_table;  // index into `pages` of the sequence's first page
};

// The rows of sequence b in the flat list.
struct ListedRows {
  int first_page;
  int64_t rows;
};
constexpr ListedRows listed_rows(const KvCacheParams& c, int b) {
  const int begin = clamped(c.indptr.at(b), 0, c.table_pages);
  const int pages = clamped(c.indptr.at(int64_t{b} + 1), begin, c.table_pages) - begin;
  if (pages == 0 || c.num_pages == 0) return {begin, 0};
  const int last = c.last_page_len.data == nullptr ? c.page_size
                                                   : clamped(c.last_page_len.at(b), 1, c.page_size);
  return {begin, (int64_t{pages} - 1) * c.page_size + last};
}

// kPlain: the launch has no packed tensors, flat list, left padding,
// or lengths and offsets of queries; omits the tests for these.
template <bool kPlain = false>
constexpr CachedEntry find_cached_entry(const ForwardParams& p, const KvCacheParams& c, int b) {
  CachedEntry found{};
  Entry& entry = found.entry;
  entry.len_q = entry.rows_q = p.seqlen_q;
  entry.len_kv = p.seqlen_kv;
  if (!kPlain && p.cu_seqlens_q.data != nullptr) {
    const PackedRows q = packed_rows(p.cu_seqlens_q, b, p.total_q, p.seqlen_q);
    entry.q_row = q.begin;
    entry.len_q = entry.rows_q = q.count;
  }
  if (!kPlain && p.cu_seqlens_kv.data != nullptr) {
    const PackedRows kv = packed_rows(p.cu_seqlens_kv, b, p.total_kv, p.seqlen_kv);
    entry.kv_row = kv.begin;
    entry.len_kv = kv.count;
  }
  found.in_table = b * c.table_batch;
  if (!kPlain && c.flat) {
    const ListedRows listed = listed_rows(c, b);
    entry.len_kv = static_cast<int>(std::min<int64_t>(listed.rows, p.seqlen_kv));
    found.in_table = listed.first_page * c.table_page;
  }
  if (!kPlain && p.seqlens_q.data != nullptr)
    entry.len_q = clamped(p.seqlens_q.at(b), 0, entry.len_q);
  if (p.seqlens_kv.data != nullptr) entry.len_kv = clamped(p.seqlens_kv.at(b), 0, entry.len_kv);
  if (!kPlain && c.leftpad.data != nullptr) {
    found.scale_row = clamped(c.leftpad.at(b), 0, entry.len_kv);
    entry.kv_row += found.scale_row;
    entry.len_kv -= found.scale_row;
  }
  if (p.diagonal == Diagonal::bottom_right) {
    entry.offset = int64_t{entry.len_kv} - entry.len_q;
  } else if (p.diagonal == Diagonal::given) {
    entry.offset =
        kPlain || p.causal_offsets.data == nullptr ? p.causal_offset : p.causal_offsets.at(b);
  }
  return found;
}

// Indices into K and V of a key's row, and the row counted as for scales.
// `page_out_of_range`: the page's index was out of range, and another page is read.
struct CachedKey {
  int lead, row, scale_row;
  bool page_out_of_range;
};

// Finds key `key`, 0 .. len_kv - 1, of sequence b. load: *pointer, with the caller's load instruction.
template <class Load>
constexpr CachedKey find_cached_key(const KvCacheParams& c, const CachedEntry& e, int b, int key,
                                    Load load) {
  const int row = e.entry.kv_row + key;
  if (c.pages == nullptr) return {b, row, e.scale_row + key, false};
  const auto page = static_cast<int>(c.by_page_size.divide(static_cast<uint32_t>(row)));
  const int32_t stored = load(c.pages + e.in_table + page * c.table_page);
  const int in_page = row - page * c.page_size;
  const int lead = clamped(stored, 0, c.num_pages - 1);
  return {lead, in_page, in_page, lead != stored};
}

}  // namespace flashcore::cuda::attention
