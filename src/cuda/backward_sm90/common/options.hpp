// The additional parameters of kernels with options: a softcap, sinks, and
// sequences that differ in their lengths, diagonals or positions in packed tensors.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::backward_sm90 {

struct Options {
  Band band;
  attention::SoftcapParams cap;  // cap_log2 0: no cap
  float tanh_rate;               // tanh of a capped score over the capped score, 1 / cap_log2
  const float* sinks;            // null: no sinks
  int64_t sink_head;
  float* d_sinks;  // null: not requested
  int64_t d_sink_head;

  // The workspace: what each query of all blocks adds to its head's dSink.
  float* sink_terms;
};

// A gradient of a packed batch: its rows begin and count by `queries` or by keys.
struct PackedGradient {
  Target target;
  int heads, rows, columns;
  bool queries;
};
struct PackedGradients {
  PackedGradient of[3];  // dQ, dK, dV
};

// True if kernels with these parameters have options.
template <class P>
inline constexpr bool kHasOptions = requires(const P& p) {
  p.options;
};

constexpr bool is_packed(const RowParams& p) { return p.cu_seqlens_q.data != nullptr; }
// Returns whether the batch is packed, in kernels of both kinds: without options it is not.
template <class P>
constexpr bool has_packed(const P& p) {
  return kHasOptions<P> && is_packed(p);
}

// The number of sequences with query blocks of their own: a packed
// batch counts as one, whose heads have q_blocks slots of packed_tiles.hpp.
template <class P>
constexpr int block_batch(const P& p) {
  return has_packed(p) ? 1 : p.batch;
}

// The rows of one sequence.
struct EntryRows {
  attention::BandLimits limits;
  int batch;          // in strides and tensor maps
  int q_row, kv_row;  // of query 0 and key 0
  int len_q;          // queries in use; limits.len_kv: keys
  int first_block;    // of queries, within a head
};

// Without options, all sequences are alike.
template <class P>
constexpr EntryRows entry_rows(const P& p, int batch, int block_q) {
  if constexpr (kHasOptions<P>) {
    const Band& band = p.options.band;
    const attention::Entry entry = attention::find_entry(p, batch);
    const bool packed = is_packed(p);
    return {.limits = attention::band_limits(band.left, band.right, entry.offset, entry.len_kv),
            .batch = packed ? 0 : batch,
            .q_row = entry.q_row,
            .kv_row = entry.kv_row,
            .len_q = entry.len_q,
            .first_block =
                packed ? static_cast<int>(attention::first_slot(entry.q_row, batch, block_q)) : 0};
  } else {
    return {p.limits, batch, 0, 0, p.seqlen_q, 0};
  }
}

// A block of rows of one head: its sequence, and its index in the sequence, which may have fewer blocks.
struct EntryBlock {
  int entry, head, block;
};

// Returns block `slot` of sequence or packed batch `batch`.
template <class P>
constexpr EntryBlock entry_block(const P& p, const attention::EntryVector& cu_seqlens, int total,
                                 int batch, int head, int slot, int rows) {
  if (!has_packed(p)) return {batch, head, slot};
  const attention::PackedTile tile = attention::find_packed_tile(
      slot, p.batch, rows,
      [=](int entry) { return attention::clamped(cu_seqlens.at(entry), 0, total); });
  return {tile.entry, head, static_cast<int>(tile.tile)};
}

// Returns block `slot` of a head's queries; `batch_head`: index of the head over the batch.
template <class P>
constexpr EntryBlock query_block(const P& p, int batch_head, int slot, int block_q) {
  const int batch = batch_head / p.heads_q;
  return entry_block(p, p.cu_seqlens_q, p.total_q, batch, batch_head - batch * p.heads_q, slot,
                     block_q);
}
// Returns block `number` of the queries of all heads: a launch has one thread block for each.
template <class P>
constexpr EntryBlock query_block(const P& p, uint32_t number, int block_q) {
  const auto slots = static_cast<uint32_t>(p.q_blocks);
  return query_block(p, static_cast<int>(number / slots), static_cast<int>(number % slots),
                     block_q);
}

// Returns block `slot` of a head's keys, likewise.
template <class P>
constexpr EntryBlock key_block(const P& p, int batch_head, int slot, int block_keys) {
  const int batch = batch_head / p.heads_kv;
  return entry_block(p, p.cu_seqlens_kv, p.total_kv, batch, batch_head - batch * p.heads_kv, slot,
                     block_keys);
}

}  // namespace flashcore::cuda::backward_sm90
