// Append. A block has one new row, its warps a head at a time. The angles of the row are computed once,
// for all of its heads.
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/serving/append/launch.hpp"
#include "cuda/serving/append/new_row.hpp"
#include "cuda/serving/common/element.cuh"

namespace flashcore::cuda::serving::append {
namespace {

using attention::CachedKey;

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct Place {
  int batch, row;  // row: of the entry, or of the packed tensor
};

__device__ Place find_place(const Params& p) {
  if (p.cu_seqlens_q.data == nullptr) {
    const auto batch = static_cast<int>(blockIdx.x / static_cast<uint32_t>(p.seqlen_q));
    return {batch, static_cast<int>(blockIdx.x) - batch * p.seqlen_q};
  }
  const auto row = static_cast<int>(blockIdx.x);
  const int batch = attention::last_entry(
      row, p.batch, [&](int b) { return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q); });
  return {batch, row};
}

// In fp64, as on the CPU, and rounded. Whole turns are taken off before the sine, which needs no long
// way for large angles then.
__device__ float2 angle_of(const Rotation& r, int64_t position, int pair) {
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

__device__ void store(const Target& to, int d, float x) {
  store_element(to.type, to.data, to.at + d, __fdiv_rn(x, to.scale));
}

// One head's row by one warp.
__device__ void copy_row(const Row& from, const Target& to, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int d = lane; d < width; d += 32) {
    if (from.type == to.type) {
      copy_element(from.type, from.data, from.at + d, to.data, to.at + d);
    } else {
      store(to, d, load_element(from.type, from.data, from.at + d));
    }
  }
}

__device__ void rotate_row(const Row& from, const Target& to, int width, const Rotation& r,
                           const float2* angles) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int n = lane; n < r.pairs; n += 32) {
    const int first = r.interleaved ? 2 * n : n, second = r.interleaved ? 2 * n + 1 : n + r.pairs;
    const float x = load_element(from.type, from.data, from.at + first);
    const float y = load_element(from.type, from.data, from.at + second);
    const float2 angle = angles[n];
    store(to, first, x * angle.x - y * angle.y);
    store(to, second, x * angle.y + y * angle.x);
  }
  for (int d = 2 * r.pairs + lane; d < width; d += 32) {
    store(to, d, load_element(from.type, from.data, from.at + d));
  }
}

__device__ int64_t at(const attention::RowMatrix& m, int64_t lead, int head, int64_t row) {
  return lead * m.batch + head * m.head + row * m.row;
}

__device__ float scale_of(const Params& p, const attention::decode::KeyScales& scale,
                          const CachedKey& key, int head) {
  if (scale.data == nullptr || p.type == p.cache_type) return 1;
  const auto block = p.by_scale_block.divide(static_cast<uint32_t>(key.scale_row));
  return scale.data[key.lead * scale.lead + head * scale.head + block * scale.block];
}

__device__ void append_head(const Params& p, const Place& place, const CachedKey& key, int head,
                            const float2* angles) {
  const Row k{p.type, p.q.data, at(p.q, place.batch, head, place.row)};
  const Target k_to{p.cache_type, p.k_cache, at(p.k, key.lead, head, key.row),
                    scale_of(p, p.k_scale, key, head)};
  if (p.rotation.pairs > 0) {
    rotate_row(k, k_to, p.head_dim_qk, p.rotation, angles);
  } else {
    copy_row(k, k_to, p.head_dim_qk);
  }
  copy_row({p.type, p.v_new.data, at(p.v_new, place.batch, head, place.row)},
           {p.cache_type, p.v_cache, at(p.v, key.lead, head, key.row),
            scale_of(p, p.v_scale, key, head)},
           p.head_dim_v);
}

__device__ void clear_row(const Target& to, int width) {
  for (int d = static_cast<int>(threadIdx.x) % 32; d < width; d += 32) store(to, d, 0);
}

__global__ void __launch_bounds__(kThreads, 2) append_kernel(const __grid_constant__ Params p) {
  auto* const angles = reinterpret_cast<float2*>(ptx::dynamic_shared());
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Place place = find_place(p);
  const NewRow row = find_new_row(p, p.cache, place.batch, place.row);
  const Rotation& rotation = p.rotation;
  const bool has_angles = rotation.cos == nullptr || row.position < rotation.positions;
  const bool fits = row.in_use && row.fits && has_angles;
  for (int n = static_cast<int>(threadIdx.x); fits && n < rotation.pairs; n += kThreads) {
    angles[n] = angle_of(rotation, row.position, n);
  }
  __syncthreads();
  bool stored = fits;
  if (fits) {
    const CachedKey key = attention::find_cached_key(p.cache, row.entry, place.batch, row.key,
                                                     [](const int32_t* page) { return *page; });
    stored = !key.off_the_table;
    for (int head = warp; stored && head < p.heads_kv; head += kWarps) {
      append_head(p, place, key, head, angles);
    }
  }
  if (row.in_use && !stored && p.cache.page_status != nullptr && threadIdx.x == 0) {
    atomicExch(p.cache.page_status, 1);
  }
  if (p.queries.data == nullptr) return;
  for (int head = warp; head < p.query_heads; head += kWarps) {
    const Target to{p.type, p.q_out, at(p.rotated, place.batch, head, place.row), 1};
    if (fits) {
      rotate_row({p.type, p.queries.data, at(p.queries, place.batch, head, place.row)}, to,
                 p.head_dim_qk, rotation, angles);
    } else {
      clear_row(to, p.head_dim_qk);
    }
  }
}

}  // namespace

cudaError_t launch(const Params& params, cudaStream_t stream) {
  return host::launch_kernel(
      &append_kernel,
      {.grid = dim3(static_cast<unsigned int>(params.rows)),
       .threads = kThreads,
       .shared_bytes = static_cast<unsigned int>(params.rotation.pairs * sizeof(float2))},
      stream, params);
}

}  // namespace flashcore::cuda::serving::append
