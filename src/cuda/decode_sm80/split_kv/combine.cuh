// The second kernel of decode_sm80: combines the partial results of a row's parts into O and LSE.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/join.cuh"
#include "cuda/decode_sm80/split_kv/params.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

using attention::decode::find_row, attention::decode::join_parts, attention::decode::Row;
using attention::decode::store_row;

// The location of a row's partial results: the first part's, and the distance between parts.
struct PartialRows {
  int count;
  int64_t first, step;
};

__device__ PartialRows find_parts(const Params& p, const Row& row) {
  const EntryWork work = work_of(row.entry, p.band, p.group);
  if (row.query >= row.entry.len_q || work.end == work.begin) return {0, 0, 0};
  const EntryUnits units = p.entry_units[row.batch];
  const auto kv_head = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row.head)));
  const int of_entry = row.query * p.group + row.head - kv_head * p.group;
  const int64_t unit =
      units.first + int64_t{kv_head} * units.parts * work.row_tiles + of_entry / kTileRows;
  const int64_t step = work.row_tiles;
  if (unit + step * (units.parts - 1) >= p.most_units) return {0, 0, 0};  // see Walk::take
  return {units.parts, unit * p.unit_rows + of_entry % kTileRows, step * p.unit_rows};
}

__device__ __forceinline__ void combine_row(const Params& p, int column) {
  const Row row = find_row(p, blockIdx.x);
  if (row.query < 0 || row.query >= row.entry.rows_q) return;
  const PartialRows parts = find_parts(p, row);
  const auto joined = join_parts(
      p.partial_rows, p.partial_o, p.head_dim_v, parts.count,
      [&](int part) { return parts.first + part * parts.step; }, column);
  store_row(p, row, joined, column);
}

__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ Params p) {
  combine_row(p, static_cast<int>(threadIdx.x));
}

// The kernel for rows that are longer than a block.
__global__ void __launch_bounds__(kCombineThreads)
    combine_wide_kernel(const __grid_constant__ Params p) {
  combine_row(p, static_cast<int>(blockIdx.y) * kCombineThreads + static_cast<int>(threadIdx.x));
}

}  // namespace
}  // namespace flashcore::cuda::decode_sm80::split_kv
