// A block's units, one after the other: which part of which entry they are. Each warp walks by
// itself, once for what it computes and once, ahead of that, for what it copies.
#pragma once

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/params.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

// The granules of a launch, in shared memory.
struct Line {
  int first[kMostEntries + 1];  // granules of all heads before an entry's; the last: of all
  int warp[kWarps];
};

__device__ __forceinline__ Line& this_line() { return ptx::static_shared<Line>(); }

__device__ __forceinline__ int granules_of_entry(const Params& p, int b) {
  if (b >= p.batch) return 0;
  return attention::decode::seen_keys(attention::find_cached_entry(p, p.cache, b).entry, p.band,
                                      p.group)
      .granules();
}

// All threads of the block.
__device__ inline void count_granules(const Params& p, Line& line) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int before = 0;
#pragma unroll 1
  for (int from = 0; from < p.batch; from += kThreads) {
    const int own = granules_of_entry(p, from + thread) * p.heads_kv;
    int sum = own;
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffU, sum, step);
      if (lane >= static_cast<int>(step)) sum += below;
    }
    __syncthreads();  // the sums of the round before have been read
    if (lane == 31) line.warp[thread / 32] = sum;
    __syncthreads();
    int first = sum - own;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == thread / 32) first += before;
      before += line.warp[w];
    }
    if (from + thread < p.batch) line.first[from + thread] = first;
  }
  if (thread == 0) line.first[p.batch] = before;
  __syncthreads();
}

// What a block computes at once: a tile of rows and a range of keys.
struct Unit {
  attention::CachedEntry at;
  int batch, kv_head;
  int first_row, rows;  // of the entry and key/value head
  int begin, end;       // keys
  int slot;             // of its partial result; -1: it is whole
  attention::BandLimits limits;
};

// Granules of a share.
__device__ __forceinline__ int share_granules(const Params& p, const Line& line) {
  const auto total = static_cast<unsigned>(line.first[p.batch]);
  return static_cast<int>(p.by_shares.divide(total + gridDim.y - 1));
}

// The block's column is its tile of kTileRows rows, its row the share that it has: what is always
// known is not held in registers.
template <int kTileRows>
class Walk {
 public:
  __device__ Walk(const Params& p, const Line& line) : p_(p), line_(line) {
    const int64_t total = line.first[p.batch], each = share_granules(p, line);
    const int64_t begin = blockIdx.y * each;
    position_ = static_cast<int>(min(begin, total));
    end_ = static_cast<int>(min(begin + each, total));
    if (position_ >= end_) return;
    entry_ = attention::last_entry(position_, p.batch, [&](int b) { return line.first[b]; });
    const auto granules = static_cast<unsigned>(granules_of_entry(p, entry_));
    const auto in_entry = static_cast<unsigned>(position_ - line.first[entry_]);
    head_ = static_cast<int>(in_entry / granules);
    granule_ = static_cast<int>(in_entry - static_cast<unsigned>(head_) * granules);
    if (!p.batch_invariant || granule_ == 0) return;
    // The part that the share before has begun is its own.
    const auto part = static_cast<unsigned>(own_part(static_cast<int>(granules)));
    const unsigned next = (static_cast<unsigned>(granule_) + part - 1) / part * part;
    skip(static_cast<int>(min(next, granules)) - granule_, static_cast<int>(granules));
  }

  // The next unit that has rows; false: there is none.
  __device__ bool take(Unit& unit) {
    while (position_ < end_) {
      while (position_ >= line_.first[entry_ + 1]) {  // also entries without keys
        ++entry_;
        head_ = granule_ = 0;
      }
      unit.at = attention::find_cached_entry(p_, p_.cache, entry_);
      const attention::Entry& entry = unit.at.entry;
      const SeenKeys seen = attention::decode::seen_keys(entry, p_.band, p_.group);
      const int granules = seen.granules();
      const int most = p_.batch_invariant ? own_part(granules) : end_ - position_;
      const int count = min(granules - granule_, most);
      unit.batch = entry_;
      unit.kv_head = head_;
      unit.slot = slot_of(granules, count);
      unit.first_row = static_cast<int>(blockIdx.x) * kTileRows;
      unit.rows = min(kTileRows, seen.rows - unit.first_row);
      const int64_t begin = seen.begin + int64_t{granule_} * kGranule;
      const int64_t end = begin + int64_t{count} * kGranule;
      skip(count, granules);
      if (unit.rows <= 0) continue;
      unit.limits = attention::band_limits(p_.band.left, p_.band.right, entry.offset, entry.len_kv);
      // Of the part's keys, those that the tile's queries see.
      const int first_query = query_of(unit.first_row);
      const int last_query = query_of(unit.first_row + unit.rows - 1);
      unit.begin = static_cast<int>(max(begin, int64_t{first_query} + unit.limits.low));
      unit.end = static_cast<int>(
          min(end, min(int64_t{entry.len_kv}, int64_t{last_query} + unit.limits.high + 1)));
      return true;
    }
    return false;
  }

 private:
  __device__ int slot_of(int granules, int count) const {
    if (count == granules) return -1;
    const int item = entry_ * p_.heads_kv + head_;
    const Cut cut{position_ - granule_, granules, item, 1, p_.batch_invariant};
    return cut.slot_at(granule_, static_cast<int>(blockIdx.y));
  }

  __device__ void skip(int count, int granules) {
    position_ += count;
    granule_ += count;
    if (granule_ < granules) return;
    granule_ = 0;
    ++head_;
  }

  __device__ int query_of(int row) const {
    return static_cast<int>(p_.by_group.divide(static_cast<uint32_t>(row)));
  }

  const Params& p_;
  const Line& line_;
  int position_, end_;  // in the line
  int entry_ = 0, head_ = 0, granule_ = 0;
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv
