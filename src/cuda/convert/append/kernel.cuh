// Append. A block has a new row of all heads, or where there are many rows each of its warps has one. A
// thread takes steps of the row: 8 elements where rows are aligned chunks of so many. The angles of the
// row are computed once, for all of its heads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/quotient.cuh"
#include "cuda/convert/append/new_row.hpp"
#include "cuda/convert/append/params.hpp"
#include "cuda/convert/common/element.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::convert::append {

using attention::CachedKey;

struct Place {
  int batch, row;  // row: of the sequence, or of the packed tensor
};

// The threads that have a row.
struct Team {
  int thread, threads;
};

__device__ __forceinline__ Place find_place(const Params& p, int row) {
  if (p.cu_seqlens_q.data == nullptr) {
    const auto batch = static_cast<int>(static_cast<uint32_t>(row) / p.seqlen_q);
    return {batch, row - batch * p.seqlen_q};
  }
  const int batch = attention::last_entry(
      row, p.batch, [&](int b) { return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q); });
  return {batch, row};
}

// In fp64, as on the CPU, and rounded. Whole turns are taken off before the sine, which needs no long
// way for large angles then.
__device__ __forceinline__ float2 angle_of(const Rotation& r, int64_t position, int pair) {
  if (r.cos != nullptr) {
    return make_float2(r.cos[position * r.cos_position + pair * r.cos_pair],
                       r.sin[position * r.sin_position + pair * r.sin_pair]);
  }
  const double turns = static_cast<double>(position) * r.turns * exp2(pair * r.log2_step);
  double sine = 0, cosine = 0;
  sincospi(2 * (turns - rint(turns)), &sine, &cosine);
  return make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

struct Row {
  ElementType type;
  const void* data;
  int64_t at;
};
struct Target {
  ElementType type;
  void* data;
  int64_t at;
  float scale;  // what is stored is the value over it
};

// A thread takes kCount elements at once: kChunk where rows are aligned chunks of so many, else one.
constexpr int kChunk = 8;

template <int kCount>
__device__ inline void load(const Row& from, int d, float (&x)[kCount]) {
  if constexpr (kCount == 1) {
    x[0] = load_element(from.type, from.data, from.at + d);
  } else {
    load_chunk(from.type, from.data, from.at + d, x);
  }
}

template <int kCount>
__device__ __forceinline__ void divide(float scale, float (&x)[kCount]) {
  const bool fast = scale > attention::kSmallestScale && scale < attention::kLargestScale;
  const attention::Scale by = attention::scale_and_reciprocal(scale);
#pragma unroll
  for (float& one : x) {
    const float q = attention::quotient(one, by);
    one = fast && isfinite(q) && q != 0 ? q : __fdiv_rn(one, scale);
  }
}

template <int kCount>
__device__ inline void store(const Target& to, int d, float (&x)[kCount]) {
  if (to.scale != 1) divide(to.scale, x);
  if constexpr (kCount == 1) {
    store_element(to.type, to.data, to.at + d, x[0]);
  } else {
    store_chunk(to.type, to.data, to.at + d, x);
  }
}

template <int kCount>
__device__ inline void copy(const Row& from, const Target& to, int d) {
  if (from.type == to.type) {
    copy_elements<kCount>(from.type, from.data, from.at + d, to.data, to.at + d);
    return;
  }
  float x[kCount];
  load(from, d, x);
  store(to, d, x);
}

// Pairs of a step of kCount elements; half-split ones have two such steps, one in each half.
template <int kCount>
__device__ inline int pairs_of_step(const Rotation& r) {
  return r.interleaved && kCount > 1 ? kCount / 2 : kCount;
}

template <int kCount>
__device__ inline int rotation_steps(const Rotation& r) {
  return r.pairs / pairs_of_step<kCount>(r);
}

__device__ inline void rotate(float& x, float& y, float2 angle) {
  const float turned = x * angle.x - y * angle.y;
  y = x * angle.y + y * angle.x;
  x = turned;
}

template <int kCount>
__device__ inline void rotate_step(const Row& from, const Target& to, int step, const Rotation& r,
                                   const float2* angles) {
  const int pair = step * pairs_of_step<kCount>(r);
  if (r.interleaved && kCount > 1) {
    float x[kCount];
    load(from, 2 * pair, x);
#pragma unroll
    for (int i = 0; i + 1 < kCount; i += 2) rotate(x[i], x[i + 1], angles[pair + i / 2]);
    store(to, 2 * pair, x);
    return;
  }
  const int first = r.interleaved ? 2 * pair : pair;
  const int second = r.interleaved ? first + 1 : pair + r.pairs;
  float x[kCount], y[kCount];
  load(from, first, x);
  load(from, second, y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) rotate(x[i], y[i], angles[pair + i]);
  store(to, first, x);
  store(to, second, y);
}

// Steps of a row that is rotated as far as it has pairs.
template <int kCount>
__device__ inline int steps_of(const Rotation& r, int width) {
  return rotation_steps<kCount>(r) + (width - 2 * r.pairs) / kCount;
}

template <int kCount>
__device__ inline void turn(const Row& from, const Target& to, int step, const Rotation& r,
                            const float2* angles) {
  const int rotations = rotation_steps<kCount>(r);
  if (step < rotations) {
    rotate_step<kCount>(from, to, step, r, angles);
  } else {
    copy<kCount>(from, to, 2 * r.pairs + (step - rotations) * kCount);
  }
}

__device__ inline int64_t at(const attention::RowMatrix& m, int64_t lead, int head, int64_t row) {
  return lead * m.batch + head * m.head + row * m.row;
}

__device__ inline float scale_of(const Params& p, const attention::decode::KeyScales& scale,
                                 const CachedKey& key, int head) {
  if (scale.data == nullptr || p.type == p.k_type) return 1;
  const auto block = p.by_scale_block.divide(static_cast<uint32_t>(key.scale_row));
  return scale.data[key.lead * scale.lead + head * scale.head + block * scale.block];
}

struct Step {
  int head, step;
};
__device__ __forceinline__ Step step_of(int number, int steps) {
  const int head = number / steps;
  return {head, number - head * steps};
}

// Steps of all heads of K and, kWithValues, of V.
template <int kCount, bool kWithValues>
__device__ __forceinline__ void append_row(const Params& p, const Team& team, const Place& place,
                                           const CachedKey& key, const float2* angles) {
  const int steps_k = steps_of<kCount>(p.rotation, p.head_dim_qk);
  const int steps = steps_k + (kWithValues ? p.head_dim_v / kCount : 0);
  for (int i = team.thread; i < p.heads_kv * steps; i += team.threads) {
    const auto [head, step] = step_of(i, steps);
    const bool is_k = !kWithValues || step < steps_k;
    const Target to{is_k ? p.k_type : p.v_type, is_k ? p.k_cache : p.v_cache,
                    at(is_k ? p.k : p.v, key.lead, head, key.row),
                    scale_of(p, is_k ? p.k_scale : p.v_scale, key, head)};
    if (is_k) {
      const Row k{p.type, p.q.data, at(p.q, place.batch, head, place.row)};
      turn<kCount>(k, to, step, p.rotation, angles);
    } else {
      const Row v{p.type, p.v_new.data, at(p.v_new, place.batch, head, place.row)};
      copy<kCount>(v, to, (step - steps_k) * kCount);
    }
  }
}

// Moves rows of 16 bits without rotation, of V and, kWithKeys, of K: several loads before the
// stores, since the compiler cannot know that the cache is not the new rows.
template <bool kWithKeys, bool kConverts>
__device__ __forceinline__ void move_row(const Params& p, const Team& team, const Place& place,
                                         const CachedKey& key) {
  constexpr int kAtOnce = kConverts ? 2 : 4;
  const int steps_k = kWithKeys ? p.head_dim_qk / kChunk : 0;
  const int steps = steps_k + p.head_dim_v / kChunk, all = p.heads_kv * steps;
  for (int first = team.thread; first < all; first += kAtOnce * team.threads) {
    uint4 data[kAtOnce];
    int64_t places[kAtOnce];
    float scales[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int number = first + n * team.threads;
      if (number >= all) continue;
      const auto [head, step] = step_of(number, steps);
      const bool is_k = step < steps_k;
      const int64_t d = (is_k ? step : step - steps_k) * kChunk;
      const attention::RowMatrix& from = is_k ? p.q : p.v_new;
      data[n] = static_cast<const uint4*>(
          from.data)[(at(from, place.batch, head, place.row) + d) / kChunk];
      places[n] = at(is_k ? p.k : p.v, key.lead, head, key.row) + d;
      scales[n] = kConverts ? scale_of(p, is_k ? p.k_scale : p.v_scale, key, head) : 1.0F;
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int number = first + n * team.threads;
      if (number >= all) continue;
      const bool is_k = step_of(number, steps).step < steps_k;
      void* const to = is_k ? p.k_cache : p.v_cache;
      if constexpr (kConverts) {
        float x[kChunk];
        unpack_chunk(p.type, data[n], x);
        store({is_k ? p.k_type : p.v_type, to, places[n], scales[n]}, 0, x);
      } else {
        static_cast<uint4*>(to)[places[n] / kChunk] = data[n];
      }
    }
  }
}

template <int kCount>
__device__ __forceinline__ void rotate_queries(const Params& p, const Team& team,
                                               const Place& place, bool fits,
                                               const float2* angles) {
  const int steps = steps_of<kCount>(p.rotation, p.head_dim_qk);
  for (int i = team.thread; fits && i < p.query_heads * steps; i += team.threads) {
    const auto [head, step] = step_of(i, steps);
    turn<kCount>({p.type, p.queries.data, at(p.queries, place.batch, head, place.row)},
                 {p.type, p.q_out, at(p.rotated, place.batch, head, place.row), 1}, step,
                 p.rotation, angles);
  }
  for (int i = team.thread; !fits && i < p.query_heads * p.head_dim_qk; i += team.threads) {
    const auto [head, d] = step_of(i, p.head_dim_qk);
    store_element(p.type, p.q_out, at(p.rotated, place.batch, head, place.row) + d, 0);
  }
}

template <Work kWork>
__global__ void __launch_bounds__(kThreads, kWork == Work::moves      ? 4
                                            : kWork == Work::converts ? 3
                                                                      : 2)
    append_kernel(const __grid_constant__ Params p) {
  constexpr int kCount = kWork == Work::elements ? 1 : kChunk;
  constexpr bool kTurns = kWork != Work::moves && kWork != Work::converts;
  const Rotation& rotation = p.rotation;
  const auto thread = static_cast<int>(threadIdx.x);
  const int number = thread / p.threads_per_row, rows_per_block = kThreads / p.threads_per_row;
  const Team team{thread - number * p.threads_per_row, p.threads_per_row};
  auto* const angles = reinterpret_cast<float2*>(ptx::dynamic_shared()) + number * rotation.pairs;
  const int64_t own = int64_t{blockIdx.x} * rows_per_block + number;
  const bool exists = own < p.rows;
  const Place place = find_place(p, static_cast<int>(exists ? own : 0));
  const NewRow row = find_new_row(p, p.cache, place.batch, place.row);
  const bool has_angles = rotation.cos == nullptr || row.position < rotation.positions;
  const bool fits = exists && row.in_use && row.fits && has_angles;
  if constexpr (kTurns) {
    for (int n = team.thread; fits && n < rotation.pairs; n += team.threads) {
      angles[n] = angle_of(rotation, row.position, n);
    }
    __syncthreads();
  }
  bool stored = fits;
  if (fits) {
    const CachedKey key = attention::find_cached_key(p.cache, row.entry, place.batch, row.key,
                                                     [](const int32_t* page) { return *page; });
    stored = !key.page_out_of_range;
    if (stored) {
      if constexpr (kTurns) {
        append_row<kCount, kWork != Work::turns>(p, team, place, key, angles);
      }
      if constexpr (kWork == Work::turns) move_row<false, true>(p, team, place, key);
      if constexpr (!kTurns) move_row<true, kWork == Work::converts>(p, team, place, key);
    }
  }
  if (exists && row.in_use && !stored && p.cache.page_status != nullptr && team.thread == 0) {
    atomicExch(p.cache.page_status, 1);
  }
  if constexpr (kTurns) {
    if (exists && p.queries.data != nullptr) rotate_queries<kCount>(p, team, place, fits, angles);
  }
}

}  // namespace flashcore::cuda::convert::append
