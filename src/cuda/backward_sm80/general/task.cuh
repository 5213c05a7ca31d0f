// The rows that a block owns, and those that it walks over: queries or keys.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm80/general/params.hpp"

namespace flashcore::cuda::backward_sm80::general {

struct Task {
  int batch, head;  // a head of the owner's side
  int first;        // row, in the sequence
  attention::Entry entry;
};

// Returns block `index` of a launch whose blocks own `block_x` rows each. It may have no rows.
template <bool kOwnsQueries>
__device__ __forceinline__ Task find_task(const Params& p, const Tiling& tiling, uint32_t index,
                                          int block_x) {
  Task task;
  if (tiling.packed_slots > 0) {
    const attention::EntryVector& cu = kOwnsQueries ? p.cu_seqlens_q : p.cu_seqlens_kv;
    const int total = kOwnsQueries ? p.total_q : p.total_kv;
    const auto slots = static_cast<uint32_t>(tiling.packed_slots);
    const auto slot = static_cast<int64_t>(index % slots);
    const attention::PackedTile tile = attention::find_packed_tile(
        slot, p.batch, block_x,
        [=](int entry) { return attention::clamped(cu.at(entry), 0, total); });
    task.head = static_cast<int>(index / slots);
    task.batch = tile.entry;
    task.first = static_cast<int>(tile.tile * block_x);
  } else {
    const attention::TileOrder::Place place = tiling.order.at(index);
    const auto heads = static_cast<uint32_t>(kOwnsQueries ? p.heads_q : p.heads_kv);
    // The order ends with the first tile, which is the longest if tiles are of keys.
    const bool turned = !kOwnsQueries && tiling.order.longest_first;
    const uint32_t tile = turned ? tiling.order.q_tiles - 1 - place.q_tile : place.q_tile;
    task.batch = static_cast<int>(place.batch_head / heads);
    task.head = static_cast<int>(place.batch_head % heads);
    task.first = static_cast<int>(tile) * block_x;
  }
  task.entry = attention::find_entry(p, task.batch);
  return task;
}

// Returns the rows in use, of the owner's side and the other.
template <bool kQueries>
__device__ __forceinline__ int length_of(const attention::Entry& entry) {
  return kQueries ? entry.len_q : entry.len_kv;
}

// The range of the other side that an owner's row sees: a visible pair has other - row in [low, high].
template <bool kOwnsQueries>
__device__ __forceinline__ attention::BandLimits limits_of(const Params& p,
                                                           const attention::Entry& entry) {
  const attention::BandLimits limits =
      attention::band_limits(p.band.left, p.band.right, entry.offset, entry.len_kv);
  return kOwnsQueries ? limits : attention::seen_from_keys(limits, entry.len_q);
}

// Returns a query's row index in the workspace: [batch, head,
// query], or [head, row of the tensor] in a packed batch.
__device__ __forceinline__ int64_t row_number(const Params& p, const attention::Entry& entry,
                                              int batch, int head, int query) {
  if (p.cu_seqlens_q.data != nullptr) {
    return int64_t{head} * p.total_q + entry.q_row + query;
  }
  return (int64_t{batch} * p.heads_q + head) * p.seqlen_q + query;
}

}  // namespace flashcore::cuda::backward_sm80::general
