// The second kernel of mla_sm90: rows whose sequences were cut, and rows that see no key.
//
//   lane l of each warp of block i   looks at row i + l * blocks
//   warp w of slice s                joins columns 128 w and up of those that are not stored yet, over
//                                    the slice's share of their parts
//
// Blocks of more than one slice are for few rows of many parts.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"
#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/params.hpp"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::mla_sm90::latent {
namespace {

using attention::decode::Row;

// A row and its partial results; parts: 1 if it is already stored, or is none.
struct Job {
  Row row;
  Parts parts;
};

// attention::decode::find_row, but where rows are few enough for 32 bits: a GPU divides 64 slowly.
__device__ Row find_row(const Params& p, int index) {
  if (p.cu_seqlens_q.data != nullptr) return attention::decode::find_row(p, index);
  const auto at = static_cast<unsigned>(index), rows = static_cast<unsigned>(p.seqlen_q);
  const unsigned heads = at / rows, batch = heads / static_cast<unsigned>(p.heads_q);
  Row row{};
  row.query = static_cast<int>(at - heads * rows);
  row.batch = static_cast<int>(batch);
  row.head = static_cast<int>(heads - batch * static_cast<unsigned>(p.heads_q));
  row.entry = attention::find_cached_entry(p, p.cache, row.batch).entry;
  return row;
}

// Row `index`, by what earlier launches than the first kernel's have written. exists: it is a row of a sequence.
struct Place {
  Row row;
  bool exists;
};

__device__ Place find_place_of(const Params& p, int index) {
  if (index >= p.join_rows) return {{}, false};
  const Row row = find_row(p, index);
  return {row, row.query >= 0 && row.query < row.entry.rows_q};
}

__device__ Job find_job(const Params& p, const Place& at) {
  if (!at.exists) return {at.row, {1, 0, 0, 0}};
  if (at.row.query >= at.row.entry.len_q) return {at.row, {0, 0, 0, 0}};
  return {at.row, p.parts[at.row.batch]};
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

// Four columns of a row, relative to the largest reference of all its parts. Of no part: the largest is not known.
struct Joined {
  float largest, sum, o[4];
};

// Returns the largest reference of a row's parts.
template <class At>
__device__ __forceinline__ float largest_of(const Params& p, int parts, At at) {
  float largest = attention::kNoKey;
#pragma unroll 4
  for (int part = static_cast<int>(threadIdx.x) % 32; part < parts; part += 32) {
    largest = fmaxf(largest, p.partial_rows[at(part)].x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  }
  return largest;
}

// Joins a slice of a row's parts: its outputs are asked for before any number is waited for.
template <int kSlices>
__device__ __forceinline__ Joined join_slice(const Params& p, const Job& job, int slice,
                                             int column) {
  constexpr int kAtOnce = kSlices == 1 ? 8 : 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = job.row.query * p.tiles_of_query + job.row.head / kRows;
  const auto at = [&](int part) {
    return (int64_t{job.parts.slot(part)} * p.tiles + tile) * kRows + job.row.head % kRows;
  };
  const int each = quotient_up(job.parts.count, kSlices);
  const int begin = slice * each, end = least(begin + each, job.parts.count);
  Joined joined{attention::kNoKey, 0, {0, 0, 0, 0}};
#pragma unroll 1
  for (int first = begin; first < end; first += kAtOnce) {
    float4 x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= end) continue;
      x[i] = *reinterpret_cast<const float4*>(p.partial_o + at(first + i) * kHeadDimV + column);
    }
    const bool exists = lane < kAtOnce && first + lane < end;
    const float2 own =
        exists ? p.partial_rows[at(first + lane)] : make_float2(attention::kNoKey, 0);
    if (first == begin) joined.largest = largest_of(p, job.parts.count, at);
    const float own_weight = attention::split_weight(own.x, joined.largest, p.unit,
                                                     [](float y) { return ptx::exp2_approx(y); });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float sum = __shfl_sync(0xffffffffU, own.y, i);
      const float weight = __shfl_sync(0xffffffffU, own_weight, i);
      if (sum == 0) continue;  // no key of the part is visible; a NaN counts
      joined.sum += weight * sum;
      joined.o[0] = attention::with_part(joined.o[0], weight, x[i].x);
      joined.o[1] = attention::with_part(joined.o[1], weight, x[i].y);
      joined.o[2] = attention::with_part(joined.o[2], weight, x[i].z);
      joined.o[3] = attention::with_part(joined.o[3], weight, x[i].w);
    }
  }
  return joined;
}

// Adds what other slices found to the first one's; returns whether this thread is of the first.
template <int kSlices>
__device__ __forceinline__ bool add_slices(Joined& joined, int slice, int thread) {
  if constexpr (kSlices > 1) {
    using Others = Joined[kSlices - 1][kSliceThreads];
    auto& others = ptx::static_shared<Others>();
    __syncthreads();  // the row before has been read
    if (slice > 0) others[slice - 1][thread] = joined;
    __syncthreads();
    if (slice > 0) return false;
#pragma unroll 1
    for (int other = 0; other + 1 < kSlices; ++other) {
      const Joined& more = others[other][thread];
      joined.sum += more.sum;
#pragma unroll
      for (int i = 0; i < 4; ++i) joined.o[i] += more.o[i];
    }
  }
  return true;
}

template <int kSlices>
__device__ __forceinline__ void join_row(const Params& p, const Job& job) {
  const int thread = static_cast<int>(threadIdx.x) % kSliceThreads, column = 4 * thread;
  const int slice = static_cast<int>(threadIdx.x) / kSliceThreads;
  Joined joined = join_slice<kSlices>(p, job, slice, column);
  if (!add_slices<kSlices>(joined, slice, thread)) return;
  const int64_t row = int64_t{job.row.entry.q_row} + job.row.query;
  const attention::decode::Ending ending =
      attention::decode::ending_of(p, job.row.head, joined.largest * p.natural, joined.sum);
  const int64_t to = attention::decode::output_at(p, job.row.batch, job.row.head, row) + column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // As attention::store_element, whose call here would change the machine code that was measured.
    const float x = ending.empty ? 0.0F : joined.o[i] * ending.factor;
    if (p.o_type == attention::ElementType::f32) {
      static_cast<float*>(p.o)[to + i] = x;
    } else {
      static_cast<uint16_t*>(p.o)[to + i] =
          static_cast<uint16_t>(attention::pack_pair(p.o_type, x, 0));
    }
  }
  if (p.lse != nullptr && column == 0) {
    p.lse[attention::decode::lse_at(p, job.row.batch, job.row.head, row)] = ending.lse;
  }
}

template <int kSlices>
__global__ void __launch_bounds__(kSlices* kSliceThreads)
    join_kernel(const __grid_constant__ Params p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Place place =
      find_place_of(p, static_cast<int>(blockIdx.x) + lane * static_cast<int>(gridDim.x));
  ptx::start_next_grid();
  ptx::wait_for_earlier_grids();
  const Job own = find_job(p, place);
#pragma unroll 1
  for (unsigned todo = __ballot_sync(0xffffffffU, own.parts.count != 1); todo != 0;
       todo &= todo - 1) {
    join_row<kSlices>(p, job_of(own, __ffs(static_cast<int>(todo)) - 1));
  }
}

}  // namespace
}  // namespace flashcore::cuda::mla_sm90::latent
