// The second kernel of decode_sm90: rows whose items were cut, and rows that see no key. Its
// blocks start before the first kernel ends, and determine the rows that they join meanwhile:
//
//   lane l of the first warp of block i   looks at row i + l * blocks
//   all threads                           join those that are not stored yet, a lane per column
//
// Work after the end of the first kernel starts with a cold instruction cache and delays the result.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/join.cuh"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/params.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/decode_sm90/stream_kv/walk.cuh"
#include "cuda/ptx/dependent_launch.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {
namespace {

using attention::decode::Row;

// A row and its partial results; parts: 0 if it sees no key, 1 if it is already stored.
struct Job {
  Row row;
  int parts, first;
  Slots slots;
};

struct Jobs {
  unsigned todo;
  Job of[32];
};

__device__ __forceinline__ int of_lane(int x, int lane) {
  return __shfl_sync(0xffffffffU, x, lane);
}

// Finds row `index`: rows within KV heads within sequences,
// as if each sequence had as many queries as the longest.
__device__ Job find_job(const Params& p, int index, int tile_shift, int lane) {
  const auto item = static_cast<int>(p.by_rows.divide(static_cast<uint32_t>(index)));
  const auto batch = static_cast<int>(p.by_heads.divide(static_cast<uint32_t>(item)));
  const int kv_head = item - batch * p.heads_kv, of_head = index - item * p.rows_of_head;
  const auto query = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(of_head)));
  int total = 0, first = 0, granules = 0;
  attention::Entry entry{};
  if (p.equal) {
    total = p.entry_cost * p.batch;
    first = p.entry_cost * batch;
    granules = p.same.seen.granules();
    entry = p.same.at.entry;
  }
#pragma unroll 1
  for (int from = 0; from < p.batch && !p.equal; from += 32) {
    KnownEntry known{};
    if (from + lane < p.batch) {
      known = p.plain ? look_up<true>(p, from + lane) : look_up<false>(p, from + lane);
    }
    const int own = cost_of(p, known) * p.heads_kv, sum = sum_of_lanes(own, lane);
    const int source = batch - from;
    const int first_there = of_lane(total + sum - own, source),
              granules_there = of_lane(known.seen.granules(), source);
    const int q_row = of_lane(known.at.entry.q_row, source),
              len_q = of_lane(known.at.entry.len_q, source),
              rows_q = of_lane(known.at.entry.rows_q, source);
    if (source >= 0 && source < 32) {
      first = first_there;
      granules = granules_there;
      entry.q_row = q_row, entry.len_q = len_q, entry.rows_q = rows_q;
    }
    total += of_lane(sum, 31);
  }
  if (batch >= p.batch || query >= entry.rows_q) return {{}, 1, 0, {}};
  const int before = first + kv_head * item_cost(granules, p.item_end);
  if (query >= entry.len_q) granules = 0;
  const int each = p.own_parts > 0 ? own_part(granules) : share_cost(p, total);
  const Cut cut{before, granules, item, each, p.own_parts};
  const int tile = of_head >> tile_shift, in_tile = of_head - (tile << tile_shift);
  return {{batch, kv_head * p.group + of_head - query * p.group, query, entry},
          cut.parts(),
          tile * p.tile_rows + in_tile,
          granules > 0 ? cut.slots() : Slots{}};
}

__global__ void __launch_bounds__(kLargestHeadDim)
    decode_join_kernel(const __grid_constant__ Params p, int tile_shift) {
  auto& jobs = ptx::static_shared<Jobs>();
  const int column = static_cast<int>(threadIdx.x), lane = column % 32;
  if (column < 32) {
    const auto index = static_cast<int>(blockIdx.x + static_cast<unsigned>(lane) * gridDim.x);
    const Job own = find_job(p, index, tile_shift, lane);
    jobs.of[lane] = own;
    const unsigned todo = __ballot_sync(0xffffffffU, own.parts != 1);
    if (lane == 0) jobs.todo = todo;
  }
  __syncthreads();
  ptx::start_next_grid();
  ptx::wait_for_earlier_grids();
#pragma unroll 1
  for (unsigned todo = jobs.todo; todo != 0; todo &= todo - 1) {
    const Job& job = jobs.of[__ffs(static_cast<int>(todo)) - 1];
    const int slot_rows = p.tiles * p.tile_rows;
    const auto at = [&, slots = job.slots, first = job.first](int part) {
      return int64_t{slots.at(part)} * slot_rows + first;
    };
    attention::decode::store_row(p, job.row,
                                 attention::decode::join_parts(p.partial_rows, p.partial_o,
                                                               p.head_dim_v, job.parts, at, column),
                                 column);
  }
}

}  // namespace
}  // namespace flashcore::cuda::decode_sm90::stream_kv
