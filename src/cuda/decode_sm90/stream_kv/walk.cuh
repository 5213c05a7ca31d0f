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

inline constexpr int kKnownEntries = 32;  // of a batch: what they ask is in shared memory

// What an entry asks for. Looking it up takes some 250 instructions, and a block has none of them in
// its cache when it begins: for few entries each is looked up once.
struct KnownEntry {
  attention::CachedEntry at;
  SeenKeys seen;
  attention::BandLimits limits;
};

__device__ __forceinline__ KnownEntry look_up(const Params& p, int b) {
  KnownEntry known{};
  known.at = attention::find_cached_entry(p, p.cache, b);
  const attention::Entry& entry = known.at.entry;
  known.seen = attention::decode::seen_keys(entry, p.band, p.group);
  known.limits = attention::band_limits(p.band.left, p.band.right, entry.offset, entry.len_kv);
  return known;
}

// The granules of a launch, in shared memory.
struct Line {
  int first[kMostEntries + 1];  // granules of all heads before an entry's; the last: of all
  int warp[kWarps];
  KnownEntry known[kKnownEntries];
};

__device__ __forceinline__ Line& this_line() { return ptx::static_shared<Line>(); }

// Over the lanes up to this one.
__device__ __forceinline__ int sum_of_lanes(int own, int lane) {
  int sum = own;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= static_cast<int>(step)) sum += below;
  }
  return sum;
}

// Of as many entries as a warp has lanes: one warp.
__device__ __forceinline__ void count_few(const Params& p, Line& line, int lane) {
  int own = 0;
  if (lane < p.batch) {
    const KnownEntry known = look_up(p, lane);
    line.known[lane] = known;
    own = known.seen.granules() * p.heads_kv;
  }
  const int sum = sum_of_lanes(own, lane);
  if (lane < p.batch) line.first[lane + 1] = sum;
  if (lane == 0) line.first[0] = 0;
}

// All threads of the block.
__device__ __forceinline__ void count_many(const Params& p, Line& line) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int before = 0;
#pragma unroll 1
  for (int from = 0; from < p.batch; from += kThreads) {
    const int b = from + thread;
    const int own = b < p.batch ? look_up(p, b).seen.granules() * p.heads_kv : 0;
    const int sum = sum_of_lanes(own, lane);
    __syncthreads();  // the sums of the round before have been read
    if (lane == 31) line.warp[thread / 32] = sum;
    __syncthreads();
    int end = sum;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == thread / 32) end += before;
      before += line.warp[w];
    }
    if (b < p.batch) line.first[b + 1] = end;
  }
  if (thread == 0) line.first[0] = 0;
}

// All threads of the block.
__device__ __forceinline__ void count_granules(const Params& p, Line& line) {
  if (p.batch <= kKnownEntries) [[likely]] {
    if (threadIdx.x < 32) count_few(p, line, static_cast<int>(threadIdx.x));
  } else {
    count_many(p, line);
  }
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
    const int total = line.first[p.batch], each = share_granules(p, line);
    position_ = min(static_cast<int>(blockIdx.y) * each, total);
    end_ = min(position_ + each, total);
    if (position_ >= end_) return;
    entry_ = attention::last_entry(position_, p.batch, [&](int b) { return line.first[b]; });
    const int first = line.first[entry_];
    const unsigned granules =
        p.by_heads.divide(static_cast<uint32_t>(line.first[entry_ + 1] - first));
    const auto in_entry = static_cast<unsigned>(position_ - first);
    head_ = static_cast<int>(in_entry / granules);
    granule_ = static_cast<int>(in_entry - static_cast<unsigned>(head_) * granules);
    if (p.batch_invariant && granule_ != 0) [[unlikely]] {
      // The part that the share before has begun is its own.
      const auto part = static_cast<unsigned>(own_part(static_cast<int>(granules)));
      const unsigned next = (static_cast<unsigned>(granule_) + part - 1) / part * part;
      skip(static_cast<int>(min(next, granules)) - granule_, static_cast<int>(granules));
    }
  }

  // The next unit that has rows; false: there is none.
  __device__ bool take(Unit& unit) {
    while (position_ < end_) {
      while (position_ >= line_.first[entry_ + 1]) {  // also entries without keys
        ++entry_;
        head_ = granule_ = 0;
      }
      KnownEntry known;
      if (p_.batch <= kKnownEntries) [[likely]] {
        known = line_.known[entry_];
      } else {
        known = look_up(p_, entry_);
      }
      const int granules = known.seen.granules();
      const int most = p_.batch_invariant ? own_part(granules) : end_ - position_;
      const int count = min(granules - granule_, most);
      unit.at = known.at;
      unit.limits = known.limits;
      unit.batch = entry_;
      unit.kv_head = head_;
      unit.slot = slot_of(granules, count);
      unit.first_row = static_cast<int>(blockIdx.x) * kTileRows;
      unit.rows = min(kTileRows, known.seen.rows - unit.first_row);
      const int begin = known.seen.begin + granule_ * kGranule;
      const int end = begin + count * kGranule;
      skip(count, granules);
      if (unit.rows <= 0) continue;
      // Of the part's keys, those that the tile's queries see. Sequences and limits are shorter than
      // kMostRows, so sums of two stay inside 32 bits.
      const int first_query = query_of(unit.first_row);
      const int last_query = query_of(unit.first_row + unit.rows - 1);
      unit.begin = max(begin, first_query + unit.limits.low);
      unit.end = min(end, min(known.at.entry.len_kv, last_query + unit.limits.high + 1));
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
