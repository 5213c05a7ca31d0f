// Iterates over a block's units: parts of sequences. One warp finds them, a unit
// ahead of the one that the block computes; copies continue into the unit found.
#pragma once

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/params.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

inline constexpr int kKnownUnits = 4;  // per block: the ending, the current and the next one

// Looking a sequence up takes some 250 instructions, which are not in the cache when a block
// begins: in small batches, each sequence is looked up once, and equal ones of larger batches are not.

// Rare paths, here and below, are `__noinline__`: inlined, they would delay every block's
// start.
template <bool kPlain>
__device__ __forceinline__ KnownEntry look_up(const Params& p, int b) {
  return known_entry(attention::find_cached_entry<kPlain>(p, p.cache, b), p.band, p.group);
}
__device__ __noinline__ inline void look_up_any(const Params& p, int b, KnownEntry& known) {
  known = look_up<false>(p, b);
}
__device__ __forceinline__ void look_up(const Params& p, int b, KnownEntry& known) {
  if (p.plain) [[likely]] {
    known = look_up<true>(p, b);
  } else {
    look_up_any(p, b, known);
  }
}

// The work that a block computes at once: a tile of rows and a range of keys.
struct Unit {
  attention::CachedEntry at;
  int batch, kv_head;
  int first_row, rows;       // in the sequence and KV head; no rows: there are no more units
  int begin, end;            // keys
  int open_begin, open_end;  // the keys that all rows see
  int slot;                  // of its partial result; -1: the unit is whole
  attention::BandLimits limits;
};

// A block's progress.
struct Position {
  int at, end;  // on the list
  int entry, head, granule;
  int known;  // the sequence held in known[0], in batches larger than kKnownEntries
};

// The items of a launch, and the units of this block, in shared memory.
struct WorkList {
  int first[kMostEntries + 1];  // the cost of all heads before a sequence's; the last: the total
  int warp[kWarps];
  KnownEntry known[kKnownEntries];
  Unit units[kKnownUnits];
  Position position;

  __device__ Unit& unit(int n) { return units[static_cast<unsigned>(n) % kKnownUnits]; }
};

__device__ __forceinline__ WorkList& this_work_list() { return ptx::static_shared<WorkList>(); }

__device__ __forceinline__ int cost_of(const Params& p, const KnownEntry& known) {
  return item_cost(known.seen.granules(), p.item_end);
}

// Returns the sum over the lanes up to this one.
__device__ __forceinline__ int sum_of_lanes(int own, int lane) {
  int sum = own;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= static_cast<int>(step)) sum += below;
  }
  return sum;
}

// For at most as many sequences as a warp has lanes. Only the walking warp needs and calls it.
__device__ __forceinline__ void sum_few(const Params& p, WorkList& list, int lane) {
  int own = 0;
  if (lane < p.batch) {
    look_up(p, lane, list.known[lane]);
    own = cost_of(p, list.known[lane]) * p.heads_kv;
  }
  const int sum = sum_of_lanes(own, lane);
  if (lane < p.batch) list.first[lane + 1] = sum;
  if (lane == 0) list.first[0] = 0;
  __syncwarp();
}

// Called by all threads of the block.
__device__ __noinline__ inline void sum_many(const Params& p, WorkList& list) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int before = 0;
#pragma unroll 1
  for (int from = 0; from < p.batch; from += kThreads) {
    const int b = from + thread;
    int own = 0;
    if (b < p.batch) {
      const KnownEntry known = p.plain ? look_up<true>(p, b) : look_up<false>(p, b);
      own = cost_of(p, known) * p.heads_kv;
    }
    const int sum = sum_of_lanes(own, lane);
    __syncthreads();  // the sums of the round before have been read
    if (lane == 31) list.warp[thread / 32] = sum;
    __syncthreads();
    int end = sum;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == thread / 32) end += before;
      before += list.warp[w];
    }
    if (b < p.batch) list.first[b + 1] = end;
  }
  if (thread == 0) list.first[0] = 0;
  __syncthreads();
}

// Called by all threads of the block; the walking warp can then read the result.
__device__ __forceinline__ void sum_costs(const Params& p, WorkList& list) {
  if (p.batch <= kKnownEntries) [[likely]] {
    if (threadIdx.x < 32) sum_few(p, list, static_cast<int>(threadIdx.x));
  } else if (p.equal) {
    if (threadIdx.x == 0) list.known[0] = p.same;
    if (threadIdx.x < 32) __syncwarp();
  } else {
    sum_many(p, list);
  }
}

// Returns the cost of a share. total: of all items.
__device__ __forceinline__ int share_cost(const Params& p, int total) {
  return static_cast<int>(p.by_shares.divide(static_cast<uint32_t>(total + p.shares - 1)));
}

// The block's column is its tile of kTileRows rows, its row its share. Used by one warp.
template <int kTileRows>
class Walk {
 public:
  __device__ Walk(const Params& p, WorkList& list) : p_(p), list_(list) {}

  __device__ void begin(int lane) const {
    const int total = first(p_.batch), each = share_cost(p_, total);
    Position to{};
    to.at = min(static_cast<int>(blockIdx.y) * each, total);
    to.end = min(to.at + each, total);
    to.known = -1;
    if (to.at < to.end) find_item(to);
    if (lane == 0) list_.position = to;
    __syncwarp();
  }

  // Sets the block's unit n to the next unit that has rows, or at the end to one without rows.
  __device__ void find_next(int n, int lane) const {
    Position to = list_.position;
    Unit unit{};
    while (to.at < to.end && !find_unit(to, unit)) {
    }
    __syncwarp();
    if (lane != 0) return;
    list_.unit(n) = unit;
    list_.position = to;
  }

 private:
  // Returns the cost of all items before a sequence's.
  __device__ int first(int entry) const {
    return p_.equal ? entry * p_.entry_cost : list_.first[entry];
  }

  // Finds the item of a position, and its granules before it. At an item's end, finds the next item.
  __device__ void find_item(Position& to) const {
    to.entry = p_.equal
                   ? static_cast<int>(p_.by_entry_cost.divide(static_cast<uint32_t>(to.at)))
                   : attention::last_entry(to.at, p_.batch, [&](int b) { return list_.first[b]; });
    const int first = this->first(to.entry);
    const unsigned cost =
        p_.by_heads.divide(static_cast<uint32_t>(this->first(to.entry + 1) - first));
    const int granules = static_cast<int>(cost) - p_.item_end;
    const auto in_entry = static_cast<unsigned>(to.at - first);
    to.head = static_cast<int>(in_entry / cost);
    to.granule = static_cast<int>(in_entry - static_cast<unsigned>(to.head) * cost);
    if (to.granule >= granules) {
      skip(to, 0, granules);
    } else if (p_.batch_invariant && to.granule != 0) [[unlikely]] {
      // The previous share completes the part that it has begun.
      const auto part = static_cast<unsigned>(own_part(granules));
      const unsigned next = (static_cast<unsigned>(to.granule) + part - 1) / part * part;
      skip(to, min(static_cast<int>(next), granules) - to.granule, granules);
    }
  }

  // Finds the unit of the share's part of an item; returns false if the tile has no rows there.
  __device__ bool find_unit(Position& to, Unit& unit) const {
    while (to.at >= first(to.entry + 1)) {  // also skips sequences without keys
      ++to.entry;
      to.head = to.granule = 0;
    }
    const KnownEntry& known = known_entry(to);
    const int granules = known.seen.granules();
    const int most = p_.batch_invariant ? own_part(granules) : to.end - to.at;
    const int count = min(granules - to.granule, most);
    unit.at = known.at;
    unit.limits = known.limits;
    unit.batch = to.entry;
    unit.kv_head = to.head;
    unit.slot = slot_of(to, granules, count);
    unit.first_row = static_cast<int>(blockIdx.x) * kTileRows;
    unit.rows = max(0, min(kTileRows, known.seen.rows - unit.first_row));
    const int begin = known.seen.begin + to.granule * kGranule;
    const int end = begin + count * kGranule;
    skip(to, count, granules);
    if (unit.rows == 0) return false;
    // The part's keys that the tile's queries see. Sequences and
    // limits are below kMostRows, so sums of two fit 32 bits.
    const int first_query = query_of(unit.first_row);
    const int last_query = query_of(unit.first_row + unit.rows - 1);
    unit.begin = max(begin, first_query + unit.limits.low);
    unit.end = min(end, min(known.at.entry.len_kv, last_query + unit.limits.high + 1));
    unit.open_begin = max(unit.begin, last_query + unit.limits.low);
    unit.open_end = min(unit.end, first_query + unit.limits.high + 1);
    if (p_.tree.present) {
      unit.open_end = static_cast<int>(min(int64_t{unit.open_end}, known.at.entry.offset));
    }
    return true;
  }

  __device__ const KnownEntry& known_entry(Position& to) const {
    if (p_.batch <= kKnownEntries) [[likely]]
      return list_.known[to.entry];
    if (p_.equal) return list_.known[0];
    if (to.known != to.entry) {
      __syncwarp();  // all lanes have read the one before
      if (threadIdx.x == 0) look_up(p_, to.entry, list_.known[0]);
      __syncwarp();
      to.known = to.entry;
    }
    return list_.known[0];
  }

  __device__ int slot_of(const Position& to, int granules, int count) const {
    if (count == granules) return -1;
    const int item = to.entry * p_.heads_kv + to.head;
    const Cut cut{to.at - to.granule, granules, item, own_part(granules), p_.own_parts};
    return cut.slot_at(to.granule, static_cast<int>(blockIdx.y));
  }

  // The item's end is skipped with its last granule.
  __device__ void skip(Position& to, int count, int granules) const {
    to.at += count;
    to.granule += count;
    if (to.granule < granules) return;
    to.at += granules + p_.item_end - to.granule;
    to.granule = 0;
    ++to.head;
  }

  __device__ int query_of(int row) const {
    return static_cast<int>(p_.by_group.divide(static_cast<uint32_t>(row)));
  }

  const Params& p_;
  WorkList& list_;
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv
