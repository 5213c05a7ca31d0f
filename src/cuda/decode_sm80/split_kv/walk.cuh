// Iterates over a block's units: parts of sequences.
//
// The block looks at a window of sequences at a time, one per thread. It counts the units
// of the window, and moves the window if its next unit lies beyond it; it never goes back.
#pragma once

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/decode_sm80/split_kv/params.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

// The work that a block computes at once: 16 rows and a range of keys.
struct Unit {
  attention::CachedEntry at;
  int batch, kv_head;
  int index;            // of its partial results
  int first_row, rows;  // in the sequence and KV head
  int begin, end;       // keys
  attention::BandLimits limits;
};

__device__ __forceinline__ EntryWork work_of_entry(const Params& p, int b) {
  if (b >= p.batch) return {0, 0, 0};
  return work_of(attention::find_cached_entry(p, p.cache, b).entry, p.band, p.group);
}

// The block's current unit, in shared memory: registers are for O.
__device__ __forceinline__ Unit& this_unit() { return ptx::static_shared<Unit>(); }

template <int kThreads>
class Walk {
  static constexpr int kWarps = kThreads / 32;
  struct Window {
    int first[kThreads];  // units of the window before a sequence's
    int warp[kWarps];
    int64_t total[kWarps];
  };

 public:
  __device__ explicit Walk(const Params& p)
      : p_(p), window_(ptx::static_shared<Window>()), next_(static_cast<int>(blockIdx.x)) {
    most_ = p.batch_invariant ? 0 : unit_granules(all_granules(), static_cast<int>(gridDim.x));
    count_units();
  }

  // Advances to the block's next unit; returns false if there is
  // none. All threads call it, after they have read the unit before.
  __device__ bool find_next() {
    // Invalid lengths of packed queries may ask for more units than there is room for.
    if (next_ >= p_.most_units) return false;
    while (next_ >= before_ + units_) {
      before_ += units_;
      first_entry_ += kThreads;
      if (first_entry_ >= p_.batch) return false;
      count_units();
    }
    if (threadIdx.x == 0) {
      const int place = next_ - before_;
      const int entry =
          attention::last_entry(place, kThreads, [&](int i) { return window_.first[i]; });
      decode(this_unit(), first_entry_ + entry, place - window_.first[entry]);
    }
    __syncthreads();  // the unit is visible to all
    next_ += static_cast<int>(gridDim.x);
    return true;
  }

 private:
  // Returns the granules of keys in all heads and tiles of rows.
  __device__ int64_t all_granules() {
    const int thread = static_cast<int>(threadIdx.x);
    int64_t total = 0;
#pragma unroll 1
    for (int b = thread; b < p_.batch; b += kThreads) {
      const EntryWork work = work_of_entry(p_, b);
      total += int64_t{work.granules()} * work.row_tiles * p_.heads_kv;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      total += __shfl_xor_sync(0xffffffffU, static_cast<long long>(total), step);
    }
    if (thread % 32 == 0) window_.total[thread / 32] = total;
    __syncthreads();
    total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += window_.total[w];
    return total;
  }

  __device__ void count_units() {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int own =
        min(units_of(work_of_entry(p_, first_entry_ + thread), p_.heads_kv, most_), p_.most_units);
    int sum = own;
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffU, sum, step);
      if (lane >= static_cast<int>(step)) sum += below;
    }
    __syncthreads();  // the window before has been read
    if (lane == 31) window_.warp[thread / 32] = sum;
    __syncthreads();
    units_ = 0;
    int before = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == thread / 32) before = units_;
      units_ += window_.warp[w];
    }
    window_.first[thread] = before + sum - own;
    __syncthreads();
  }

  __device__ void decode(Unit& unit, int b, int place) {
    const attention::CachedEntry at = attention::find_cached_entry(p_, p_.cache, b);
    const attention::Entry& entry = at.entry;
    unit.at = at;
    const EntryWork work = work_of(entry, p_.band, p_.group);
    const Parts parts = parts_of(work.granules(), most_);
    const auto tiles = static_cast<unsigned>(work.row_tiles);
    const unsigned part_and_head = static_cast<unsigned>(place) / tiles;
    const unsigned tile = static_cast<unsigned>(place) - part_and_head * tiles;
    const unsigned head = part_and_head / static_cast<unsigned>(parts.count);
    const auto part = static_cast<int>(part_and_head - head * static_cast<unsigned>(parts.count));
    unit.batch = b;
    unit.kv_head = static_cast<int>(head);
    unit.index = next_;
    unit.first_row = static_cast<int>(tile) * kTileRows;
    unit.rows = min(kTileRows, entry.len_q * p_.group - unit.first_row);
    const attention::BandLimits limits =
        attention::band_limits(p_.band.left, p_.band.right, entry.offset, entry.len_kv);
    unit.limits = limits;
    // The part's keys that the tile's queries see.
    const int first_query = query_of(unit.first_row);
    const int last_query = query_of(unit.first_row + unit.rows - 1);
    const int64_t part_begin = work.begin + int64_t{part} * parts.granules * kGranule;
    const int64_t part_end = part_begin + int64_t{parts.granules} * kGranule;
    unit.begin = static_cast<int>(max(part_begin, int64_t{first_query} + unit.limits.low));
    unit.end = static_cast<int>(
        min(part_end, min(int64_t{entry.len_kv}, int64_t{last_query} + unit.limits.high + 1)));
    if (place == 0) p_.entry_units[b] = {next_, parts.count};
  }

  __device__ int query_of(int row) const {
    return static_cast<int>(p_.by_group.divide(static_cast<uint32_t>(row)));
  }

  const Params& p_;
  Window& window_;
  int next_;
  int most_ = 0;         // granules per unit
  int first_entry_ = 0;  // of the window
  int before_ = 0;       // units before it
  int units_ = 0;        // units in it
};

}  // namespace flashcore::cuda::decode_sm80::split_kv
