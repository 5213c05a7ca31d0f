// Which entry of a packed batch has tile `index`, all tiles of an entry and its heads following
// each other: only the device knows how many an entry has.
//
//   entry     | 0: 3 tiles | 1: 0 | 2: 1 | ... 31 |  32 ...      32 entries at a time, one per lane
//   index       0  1  2               3     ...
//
// A block's tiles have growing numbers, so that it walks over the entries once, however many tiles
// it takes, and stays at the 32 that it sees while they have tiles for it.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/task.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

// In shared memory: the warp that walks has few registers.
template <class P>
struct PackedWalk {
  int first_entry;       // lane i looks at the i-th from here
  uint32_t first_index;  // of their tiles
  uint32_t seen[32];     // tiles of the entries up to each lane's
  OwnEntry entries[32];

  struct Place {
    int lane;        // whose entry it is
    uint32_t index;  // among its tiles
  };

  // By the whole warp, before it finds anything.
  __device__ __forceinline__ void begin(const P& p, int block_q, int lane) {
    if (lane == 0) first_entry = 0, first_index = 0;
    look(p, 0, block_q, lane);
  }

  // By the whole warp, with an index that is not below the one before. False: there is none.
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
