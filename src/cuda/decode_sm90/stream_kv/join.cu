// The second kernel of decode_sm90: rows whose items were cut, and rows that see no key. Its blocks
// are there before the first kernel ends.
#include <cstdint>

#include "cuda/attention/decode/join.cuh"
#include "cuda/decode_sm90/stream_kv/launch.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/dependent_launch.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {
namespace {

using attention::decode::find_row, attention::decode::join_parts, attention::decode::Row;
using attention::decode::row_count, attention::decode::store_row;

__global__ void __launch_bounds__(kJoinThreads)
    decode_join_kernel(const __grid_constant__ Params p, int rows_of_tile) {
  const auto column = static_cast<int>(blockIdx.y * kJoinThreads + threadIdx.x);
  const Row row = find_row(p, blockIdx.x);
  const SeenKeys seen = attention::decode::seen_keys(row.entry, p.band, p.group);
  ptx::wait_for_earlier_grids();
  if (row.query < 0 || row.query >= row.entry.rows_q) return;
  const int granules = row.query < row.entry.len_q ? seen.granules() : 0;
  Cut cut{0, granules, 0, 1, p.batch_invariant};
  int of_entry = 0;
  if (granules > 0) {
    const auto kv_head = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row.head)));
    of_entry = row.query * p.group + row.head - kv_head * p.group;
    cut.first = p.first_granules[row.batch] + kv_head * granules;
    cut.item = row.batch * p.heads_kv + kv_head;
    cut.each = p.batch_invariant ? own_part(granules) : *p.share_granules;
  }
  const int parts = cut.parts();
  if (parts == 1) return;  // the first kernel has stored it
  const int tile = of_entry / rows_of_tile, in_tile = of_entry - tile * rows_of_tile;
  const int first = tile * p.tile_rows + in_tile, slot_rows = p.tiles * p.tile_rows;
  const Slots slots = cut.slots();
  const auto at = [&](int part) { return int64_t{slots.at(part)} * slot_rows + first; };
  store_row(p, row, join_parts(p.partial_rows, p.partial_o, p.head_dim_v, parts, at, column),
            column);
}

}  // namespace

cudaError_t prepare_join(cudaFunction_t& function) {
  return host::find_function(function, &decode_join_kernel);
}

cudaError_t join(cudaFunction_t function, const Params& params, int rows_of_tile,
                 cudaStream_t stream) {
  const auto rows = static_cast<unsigned int>(row_count(params));
  const auto columns =
      static_cast<unsigned int>((params.head_dim_v + kJoinThreads - 1) / kJoinThreads);
  return host::launch_kernel(function, &decode_join_kernel,
                             {.grid = dim3(rows, columns), .threads = kJoinThreads, .early = true},
                             stream, params, rows_of_tile);
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
