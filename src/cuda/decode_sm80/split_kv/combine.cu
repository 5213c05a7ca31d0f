// The second kernel of decode_sm80: the partial results of a row's parts become O and LSE.
//
// One warp a row. Parts are taken in the order of their keys, and a lane's share of the sum does
// not depend on other rows: the same parts give the same bits in every batch.
#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/decode_sm80/split_kv/launch.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

using attention::kLn2, attention::kLog2E, attention::kNoKey;

constexpr int kRowsPerBlock = 4;
constexpr int kLaneColumns = kLargestHeadDim / 32;

__host__ __device__ int64_t row_count(const Params& p) {
  const int64_t rows = p.cu_seqlens_q.data != nullptr ? p.total_q : int64_t{p.batch} * p.seqlen_q;
  return rows * p.heads_q;
}

struct Row {
  int batch, head, query;
  attention::Entry entry;
};

// Row `index` of O, heads within entries, or packed rows within heads.
__device__ Row find_row(const Params& p, int64_t index) {
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int64_t rows = packed ? p.total_q : p.seqlen_q;
  const int64_t batch_head = index / rows;
  Row row{};
  row.query = static_cast<int>(index - batch_head * rows);
  if (packed) {
    row.head = static_cast<int>(batch_head);
    row.batch = attention::last_entry(row.query, p.batch, [&](int b) {
      return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q);
    });
  } else {
    row.batch = static_cast<int>(batch_head / p.heads_q);
    row.head = static_cast<int>(batch_head - int64_t{row.batch} * p.heads_q);
  }
  row.entry = attention::find_cached_entry(p, p.cache, row.batch).entry;
  if (packed) row.query -= row.entry.q_row;
  return row;
}

// Where a row's partial results are: of the first part, and how far apart.
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

__device__ void store_output(const Params& p, int64_t at, float x) {
  if (p.o_type == OutputType::f32) {
    static_cast<float*>(p.o)[at] = x;
  } else {
    static_cast<uint16_t*>(p.o)[at] = static_cast<uint16_t>(
        p.o_type == OutputType::f16 ? ptx::pack_f16x2(x, 0) : ptx::pack_bf16x2(x, 0));
  }
}

__device__ float exp_of(float x) { return ptx::exp2_approx(x * kLog2E); }

__global__ void __launch_bounds__(32 * kRowsPerBlock)
    combine_kernel(const __grid_constant__ Params p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t index = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (index >= row_count(p)) return;
  const Row row = find_row(p, index);
  if (row.query < 0 || row.query >= row.entry.rows_q) return;
  const PartialRows parts = find_parts(p, row);

  float largest = kNoKey;
#pragma unroll 4
  for (int i = 0; i < parts.count; ++i) {
    largest = fmaxf(largest, p.partial_rows[parts.first + i * parts.step].x);
  }
  float sum = 0, o[kLaneColumns] = {};
#pragma unroll 4
  for (int i = 0; i < parts.count; ++i) {
    const int64_t at = parts.first + i * parts.step;
    const float2 part = p.partial_rows[at];
    if (part.y == 0) continue;  // no key of the part is seen, and it may have no outputs
    const float weight = attention::split_weight(part.x, largest, kLog2E,
                                                 [](float x) { return ptx::exp2_approx(x); });
    sum += part.y * weight;
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      const int column = lane + 32 * c;
      if (column >= p.head_dim_v) continue;
      o[c] = attention::with_part(o[c], weight, p.partial_o[at * p.head_dim_v + column]);
    }
  }

  const bool empty = sum == 0;  // a NaN sum is not empty
  const float sink = p.sinks.data == nullptr ? kNoKey : p.sinks.data[row.head * p.sinks.head];
  const float top = fmaxf(largest, sink);
  const float share = exp_of(largest - top);
  sum = sum * share + (sink == kNoKey ? 0.0F : exp_of(sink - top));
  const float factor = __fdividef(share, sum);
  const int64_t first =
      row.batch * p.o_batch + row.head * p.o_head + int64_t{row.entry.q_row + row.query} * p.o_row;
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    const int column = lane + 32 * c;
    if (column < p.head_dim_v) store_output(p, first + column, empty ? 0.0F : o[c] * factor);
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[row.batch * p.lse_batch + row.head * p.lse_head +
          int64_t{row.entry.q_row + row.query} * p.lse_row] =
        empty ? sink : top + __log2f(sum) * kLn2;
  }
}

}  // namespace

cudaError_t prepare_combine() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&combine_kernel));
}

cudaError_t combine_parts(const Params& params, cudaStream_t stream) {
  const int64_t rows = row_count(params);
  const auto blocks = static_cast<unsigned int>((rows + kRowsPerBlock - 1) / kRowsPerBlock);
  return host::launch_kernel(&combine_kernel, {.grid = dim3(blocks), .threads = 32 * kRowsPerBlock},
                             stream, params);
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
