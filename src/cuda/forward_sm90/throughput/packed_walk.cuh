// Finds the sequence of a packed batch that has tile `index`. A sequence's tiles
// of all heads are consecutive; only the device knows how many a sequence has.
//
//   sequence  | 0: 3 tiles | 1: 0 | 2: 1 | ... 31 |  32 ...      32 sequences at a time, one per lane
//   index       0  1  2               3     ...
//
// A block's tile numbers increase, so it walks over the sequences once, however
// many tiles it takes, and stays at the current 32 while they have tiles for it.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/task.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// Kept in shared memory: the warp that walks has few registers.
template <class P>
struct PackedWalk {
  int first_entry;       // lane i looks at the i-th sequence from here
  uint32_t first_index;  // of their first tile
  uint32_t seen[32];     // tiles of the sequences up to each lane's
  OwnEntry entries[32];

  struct Place {
    int lane;        // the lane that holds the sequence
    uint32_t index;  // among the sequence's tiles
  };

  // Called by the whole warp before the first find().
  __device__ __forceinline__ void begin(const P& p, int block_q, int lane) {
    if (lane == 0) first_entry = 0, first_index = 0;
    look(p, 0, block_q, lane);
  }

  // Called by the whole warp, with indices that never decrease. Returns false if there is no such tile.
  __device__ __forceinline__ bool find(const P& p, uint32_t index, int block_q, int lane,
                                       Place& place) {
    while (true) {
      const uint32_t within = index - first_index;
      const uint32_t later = __ballot_sync(0xffffffffU, within < seen[lane]);
      if (later != 0) {
        const int at = __ffs(static_cast<int>(later)) - 1;
        place = {at, within - (at == 0 ? 0 : seen[at - 1])};
        return true;
      }
      const int entry = first_entry + 32;
      if (entry >= p.batch) return false;
      const uint32_t next_index = first_index + seen[31];
      __syncwarp();  // all have read
      if (lane == 0) first_entry = entry, first_index = next_index;
      look(p, entry, block_q, lane);
    }
  }

 private:
  __device__ __forceinline__ void look(const P& p, int first, int block_q, int lane) {
    const int entry = first + lane;
    uint32_t tiles = 0;
    if (entry < p.batch) {
      const OwnEntry own = find_own_entry(p, entry);
      tiles = tiles_of(own.rows_q, block_q) * p.heads;
      entries[lane] = own;
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(0xffffffffU, tiles, static_cast<unsigned>(step));
      if (lane >= step) tiles += before;
    }
    seen[lane] = tiles;
    __syncwarp();
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
