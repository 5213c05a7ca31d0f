// The second kernel of mla_sm90: rows whose sequences were cut, and rows that see no key.
//
//   lane l of each warp of block i   looks at row i + l * blocks
//   warp w                           joins columns 128 w and up of those that are not stored yet
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"
#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/params.hpp"
#include "cuda/ptx/dependent_launch.cuh"

namespace flashcore::cuda::mla_sm90::latent {
namespace {

using attention::decode::Row;

// A row and its partial results; parts: 1 if it is already stored, or is none.
struct Job {
  Row row;
  Parts parts;
};

__device__ Job find_job(const Params& p, int index) {
  if (index >= p.join_rows) return {{}, {1, 0, 0, 0}};
  const Row row = attention::decode::find_row(p, index);
  if (row.query < 0 || row.query >= row.entry.rows_q) return {row, {1, 0, 0, 0}};
  if (row.query >= row.entry.len_q) return {row, {0, 0, 0, 0}};
  return {row, p.parts[row.batch]};
}

__device__ __forceinline__ int from_lane(int x, int lane) {
  return __shfl_sync(0xffffffffU, x, lane);
}

// The job that lane `lane` found, for all lanes.
__device__ Job job_of(const Job& own, int lane) {
  Job job{};
  job.row.batch = from_lane(own.row.batch, lane);
  job.row.head = from_lane(own.row.head, lane);
  job.row.query = from_lane(own.row.query, lane);
  job.row.entry.q_row = from_lane(own.row.entry.q_row, lane);
  job.parts = {from_lane(own.parts.count, lane), from_lane(own.parts.base, lane),
               from_lane(own.parts.step, lane), from_lane(own.parts.odd, lane)};
  return job;
}

// Joins four columns of a row per lane.
__device__ void join_row(const Params& p, const Job& job, int column) {
  constexpr int kAtOnce = 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = job.row.query * p.tiles_of_query + job.row.head / kRows;
  const auto at = [&](int part) {
    return (int64_t{job.parts.slot(part)} * p.tiles + tile) * kRows + job.row.head % kRows;
  };
  float largest = attention::kNoKey;
#pragma unroll 1
  for (int part = lane; part < job.parts.count; part += 32) {
    largest = fmaxf(largest, p.partial_rows[at(part)].x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  }
  float sum = 0, o[4] = {0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < job.parts.count; first += kAtOnce) {
    float2 rows[kAtOnce];
    float4 x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      rows[i] = make_float2(attention::kNoKey, 0);
      if (first + i >= job.parts.count) continue;
      rows[i] = p.partial_rows[at(first + i)];
      x[i] = *reinterpret_cast<const float4*>(p.partial_o + at(first + i) * kHeadDimV + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (rows[i].y == 0) continue;  // no key of the part is visible; a NaN counts
      const float weight = attention::split_weight(rows[i].x, largest, p.unit,
                                                   [](float y) { return ptx::exp2_approx(y); });
      sum += weight * rows[i].y;
      o[0] = attention::with_part(o[0], weight, x[i].x);
      o[1] = attention::with_part(o[1], weight, x[i].y);
      o[2] = attention::with_part(o[2], weight, x[i].z);
      o[3] = attention::with_part(o[3], weight, x[i].w);
    }
  }
  const int64_t row = int64_t{job.row.entry.q_row} + job.row.query;
  const attention::decode::Ending ending =
      attention::decode::ending_of(p, job.row.head, largest * p.natural, sum);
  const int64_t to = attention::decode::output_at(p, job.row.batch, job.row.head, row) + column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    attention::decode::store_output(p, to + i, ending.empty ? 0.0F : o[i] * ending.factor);
  }
  if (p.lse != nullptr && column == 0) {
    p.lse[attention::decode::lse_at(p, job.row.batch, job.row.head, row)] = ending.lse;
  }
}

__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ Params p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::start_next_grid();
  ptx::wait_for_earlier_grids();
  const Job own = find_job(p, static_cast<int>(blockIdx.x) + lane * static_cast<int>(gridDim.x));
#pragma unroll 1
  for (unsigned todo = __ballot_sync(0xffffffffU, own.parts.count != 1); todo != 0;
       todo &= todo - 1) {
    join_row(p, job_of(own, __ffs(static_cast<int>(todo)) - 1), 4 * static_cast<int>(threadIdx.x));
  }
}

}  // namespace
}  // namespace flashcore::cuda::mla_sm90::latent
