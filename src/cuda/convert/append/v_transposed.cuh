// Append's V where the cache has it stored transposed: a block has a new row of all heads, which becomes
// a column. K and the queries are kernel.cuh's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/convert/append/new_row.hpp"
#include "cuda/convert/append/params.hpp"
#include "cuda/convert/common/element.cuh"
#include "problem/transposed.hpp"

namespace flashcore::cuda::convert::append {

__device__ __forceinline__ float scale_of_column(const Params& p, const attention::CachedKey& key,
                                                 int head) {
  if (p.v_scale.data == nullptr || p.type == p.v_type) return 1;
  const auto block = p.by_scale_block.divide(static_cast<uint32_t>(key.scale_row));
  return p.v_scale
      .data[key.lead * p.v_scale.lead + head * p.v_scale.head + block * p.v_scale.block];
}

__global__ void __launch_bounds__(kThreads)
    append_v_transposed_kernel(const __grid_constant__ Params p) {
  const auto batch = static_cast<int>(blockIdx.x / static_cast<uint32_t>(p.seqlen_q));
  const int new_row = static_cast<int>(blockIdx.x) - batch * p.seqlen_q;
  const NewRow row = find_new_row(p, p.cache, batch, new_row);
  const bool has_angles = p.rotation.cos == nullptr || row.position < p.rotation.positions;
  if (!row.in_use || !row.fits || !has_angles) return;  // kernel.cuh says so where that is wanted
  const attention::CachedKey key = attention::find_cached_key(
      p.cache, row.entry, batch, row.key, [](const int32_t* page) { return *page; });
  const int64_t column = column_of_key(key.row);
  for (int i = static_cast<int>(threadIdx.x); i < p.heads_kv * p.head_dim_v; i += kThreads) {
    const int head = i / p.head_dim_v, d = i - head * p.head_dim_v;
    const int64_t from = batch * p.v_new.batch + head * p.v_new.head + new_row * p.v_new.row + d;
    const int64_t to = key.lead * p.v.batch + head * p.v.head + d * p.v.row + column;
    if (p.type == p.v_type) {
      static_cast<uint8_t*>(p.v_cache)[to] = static_cast<const uint8_t*>(p.v_new.data)[from];
      continue;
    }
    const float x = load_element(p.type, p.v_new.data, from);
    store_element(p.v_type, p.v_cache, to, __fdiv_rn(x, scale_of_column(p, key, head)));
  }
}

}  // namespace flashcore::cuda::convert::append
