// Elements of dBias that are not finite, computed again over visible pairs only (common/exact.cuh).
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/throughput/bias/params.hpp"
#include "cuda/backward_sm90/throughput/finish.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

// The sum of one element, by a warp.
template <int kConfigIndex, class Element>
__device__ __forceinline__ float exact_bias(const BiasParams& p, const BiasItem& item, int query,
                                            int key, int lane) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  using Row = ExactRow<kConfig.head_dim, Element>;
  const BiasTarget& to = p.d_bias;
  float sum = 0;
  for (int batch = item.batch; batch < (to.sums(0) ? p.batch : item.batch + 1); ++batch) {
    const EntryRows rows = entry_rows(p, batch, kConfig.block_q);
    const ExactEntry<BiasParams> exact{p, rows, kConfig.block_q, batch};
    for (int head = item.head; head < (to.sums(1) ? p.heads_q : item.head + 1); ++head) {
      for (int i = query; i < (to.sums(2) ? rows.len_q : min(query + 1, rows.len_q)); ++i) {
        const attention::ColumnRange seen = attention::visible_columns(rows.limits, i, 0);
        Row q, d_o;
        q.load(p.q, rows.batch, head, rows.q_row + i, lane, p.head_dim_qk);
        d_o.load(p.d_o, rows.batch, head, rows.q_row + i, lane, p.head_dim_v);
        const int begin = max(seen.begin, key),
                  end = to.sums(3) ? seen.end : min(seen.end, key + 1);
        for (int j = begin; j < end; ++j) {
          Row k, v;
          k.load(p.k, rows.batch, head / p.group, rows.kv_row + j, lane, p.head_dim_qk);
          v.load(p.v, rows.batch, head / p.group, rows.kv_row + j, lane, p.head_dim_v);
          const auto [removed, pair] =
              exact_weights(exact, {batch, head, i, j}, q.dot(k), d_o.dot(v));
          if (!removed) sum += pair.ds;
        }
      }
    }
  }
  return sum;
}

// An element that this launch may write, so that it is read as memory that changes.
__device__ __forceinline__ float written_element(const BiasTarget& to, int64_t at) {
  if (to.type == ElementType::f32) return static_cast<const float*>(to.data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(to.data)[at];
  return to.type == ElementType::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
}

template <int kConfigIndex, class Element>
__device__ __forceinline__ void finish_item(const BiasParams& p, uint32_t number) {
  const BiasTarget& to = p.d_bias;
  const BiasItem item = bias_item(p, number);
  const int first_query = item.q_tile * kBiasTile, first_key = item.k_tile * kBiasTile;
  const int queries = min(kBiasTile, to.extents[2] - first_query);
  const int keys = min(kBiasTile, to.extents[3] - first_key);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t origin = item.batch * to.batch + item.head * to.head;
  const auto element = [&](int i) {
    return origin + (first_query + i / keys) * to.query + (first_key + i % keys) * to.key;
  };
  for (int first = 32 * warp; first < queries * keys; first += kRowThreads) {
    const int own = first + lane;
    const bool is_wanted = own < queries * keys && written_element(to, element(own)) * 0 != 0;
    for (uint32_t left = __ballot_sync(0xffffffffU, is_wanted); left != 0; left &= left - 1) {
      const int i = first + __ffs(static_cast<int>(left)) - 1;
      const float sum = exact_bias<kConfigIndex, Element>(p, item, first_query + i / keys,
                                                          first_key + i % keys, lane);
      __syncwarp();  // all lanes have read theirs
      if (lane == 0) attention::store_element(to.type, to.data, element(i), sum);
    }
  }
}

template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads, 2)
    finish_bias_kernel(const __grid_constant__ BiasParams p) {
  for_each_wanted(
      p.items, [&](int64_t item) { return p.marks[item] != 0; },
      [&](int64_t item) { finish_item<kConfigIndex, Element>(p, static_cast<uint32_t>(item)); });
}

}  // namespace flashcore::cuda::backward_sm90::throughput
