// A sequence's rows, the number in use, and its diagonal, for any
// lengths in device memory: all of them are clamped to the tensors.
//
// constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/forward_params.hpp"

namespace flashcore::cuda::attention {

struct Entry {
  int q_row = 0, kv_row = 0;  // rows of query 0 and key 0 in packed tensors
  int len_q, len_kv;          // queries and keys in use
  int rows_q;                 // rows of O and LSE that belong to the sequence, at least len_q
  int64_t offset = 0;         // key - query on the diagonal
};

struct PackedRows {
  int begin, count;
};

constexpr int clamped(int32_t value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

// Returns the rows of sequence b in a packed tensor of `total` rows, at most `bound` of them.
constexpr PackedRows packed_rows(const EntryVector& cu_seqlens, int b, int total, int bound) {
  const int begin = clamped(cu_seqlens.at(b), 0, total);
  const int end = clamped(cu_seqlens.at(int64_t{b} + 1), begin, total);
  return {begin, std::min(end - begin, bound)};
}

constexpr Entry find_entry(const ForwardParams& p, int b) {
  Entry entry;
  entry.len_q = entry.rows_q = p.seqlen_q;
  entry.len_kv = p.seqlen_kv;
  if (p.cu_seqlens_q.data != nullptr) {
    const PackedRows q = packed_rows(p.cu_seqlens_q, b, p.total_q, p.seqlen_q);
    const PackedRows kv = packed_rows(p.cu_seqlens_kv, b, p.total_kv, p.seqlen_kv);
    entry.q_row = q.begin;
    entry.len_q = entry.rows_q = q.count;
    entry.kv_row = kv.begin;
    entry.len_kv = kv.count;
  }
  if (p.seqlens_q.data != nullptr) entry.len_q = clamped(p.seqlens_q.at(b), 0, entry.len_q);
  if (p.seqlens_kv.data != nullptr) entry.len_kv = clamped(p.seqlens_kv.at(b), 0, entry.len_kv);
  if (p.diagonal == Diagonal::bottom_right) {
    entry.offset = int64_t{entry.len_kv} - entry.len_q;
  } else if (p.diagonal == Diagonal::given) {
    entry.offset = p.causal_offsets.data != nullptr ? p.causal_offsets.at(b) : p.causal_offset;
  }
  return entry;
}

}  // namespace flashcore::cuda::attention
