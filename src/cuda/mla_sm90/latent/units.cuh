// Finds the parts of sequences in a block's share: units. All threads of all blocks look at all lengths.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/work.hpp"
#include "cuda/mla_sm90/latent/block.cuh"
#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/params.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// Numbers of each warp, in the place of the block state.
struct Scratch {
  int sum[kWarps], count[kWarps], longest[kWarps];
};
static_assert(sizeof(Scratch) <= sizeof(BlockState::factor));

// A sequence's visible keys. shift: from a key's number to its place.
struct Seen {
  attention::CachedEntry at;
  attention::BandLimits limits;
  int shift;
  int first_tile, tiles;
};

__device__ inline Seen look_up(const Params& p, int b) {
  Seen seen{};
  if (b >= p.batch) return seen;
  seen.at = attention::find_cached_entry(p, p.cache, b);
  const attention::Entry& entry = seen.at.entry;
  const attention::decode::SeenKeys keys = attention::decode::seen_keys(entry, p.band, p.group);
  seen.limits = attention::band_limits(p.band.left, p.band.right, entry.offset, entry.len_kv);
  if (keys.end <= keys.begin) return seen;
  seen.shift = p.cache.pages == nullptr ? 0 : entry.kv_row % kGroupRows;
  seen.first_tile = static_cast<int>(static_cast<unsigned>(keys.begin + seen.shift) / kTileKeys);
  seen.tiles = quotient_up(keys.end + seen.shift, kTileKeys) - seen.first_tile;
  return seen;
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

struct Sum {
  int before, all;  // of the threads before this one, and of all
};

// Called by all threads of the block.
__device__ inline Sum sum_of_threads(int own, int (&of_warp)[kWarps]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int sum = sum_of_lanes(own, lane);
  __syncthreads();  // the sums before have been read
  if (lane == 31) of_warp[thread / 32] = sum;
  __syncthreads();
  Sum found{sum - own, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < thread / 32) found.before += of_warp[w];
    found.all += of_warp[w];
  }
  return found;
}

// seen: of the first sequences, one a thread.
__device__ inline Cutting find_cutting(const Params& p, const Seen& seen, Scratch& scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  int tiles = 0, items = 0, longest = 0;
#pragma unroll 1
  for (int from = 0; from < p.batch; from += kThreads) {
    const int own = from == 0 ? seen.tiles : look_up(p, from + thread).tiles;
    tiles += p.batch_invariant ? own_parts(own) : own;
    items += own > 0 ? 1 : 0;
    longest = max(longest, own);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    tiles += __shfl_xor_sync(0xffffffffU, tiles, step);
    items += __shfl_xor_sync(0xffffffffU, items, step);
    longest = max(longest, __shfl_xor_sync(0xffffffffU, longest, step));
  }
  if (thread % 32 == 0) {
    scratch.sum[thread / 32] = tiles;
    scratch.count[thread / 32] = items;
    scratch.longest[thread / 32] = longest;
  }
  __syncthreads();
  tiles = items = longest = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    tiles += scratch.sum[w];
    items += scratch.count[w];
    longest = max(longest, scratch.longest[w]);
  }
  return p.batch_invariant ? own_cutting(tiles, p.shares)
                           : cutting(tiles, items, longest, p.shares);
}

// Writes the block's units, and returns how many. The first block also writes how every sequence is cut.
__device__ inline int find_units(const Params& p, const Block& block, Scratch& scratch) {
  const int share = ptx::block_index_y();
  Seen seen = look_up(p, static_cast<int>(threadIdx.x));
  const Cutting cut = find_cutting(p, seen, scratch);
  int list = 0, count = 0;
#pragma unroll 1
  for (int from = 0; from < p.batch; from += kThreads) {
    const int b = from + static_cast<int>(threadIdx.x);
    if (from > 0) seen = look_up(p, b);
    const Sum at = sum_of_threads(item_cost(cut, seen.tiles), scratch.sum);
    const int first = list + at.before;
    const bool exists = block.query < seen.at.entry.len_q;
    const int parts = exists ? part_count(cut, first, seen.tiles, share) : 0;
    const Sum before = sum_of_threads(parts, scratch.count);
    if (block.tile == 0 && share == 0 && b < p.batch) p.parts[b] = parts_of(cut, first, seen.tiles);
#pragma unroll 1
    for (int nth = 0; nth < parts; ++nth) {
      const Part part = part_of(cut, first, seen.tiles, share, nth);
      // Sequences and limits are below kMostRows, so sums of two fit 32 bits.
      const attention::ColumnRange keys =
          attention::visible_columns(seen.limits, block.query, -seen.shift);
      Unit unit{};
      unit.in_table = seen.at.in_table;
      unit.tree = seen.at.entry.offset + seen.shift;
      unit.batch = b;
      unit.q_row = seen.at.entry.q_row + block.query;
      unit.kv_row = seen.at.entry.kv_row - seen.shift;
      const int begin =
          max(max(keys.begin, seen.shift), (seen.first_tile + part.begin) * kTileKeys);
      const int end = min(keys.end, (seen.first_tile + part.end) * kTileKeys);
      if (end > begin) unit.begin = begin, unit.end = end;
      unit.slot = part.slot;
      block.units[count + before.before + nth] = unit;
    }
    list += at.all;
    count += before.all;
  }
  __syncthreads();  // the units are there for all threads, and the scratch has been read
  return count;
}

}  // namespace flashcore::cuda::mla_sm90::latent
