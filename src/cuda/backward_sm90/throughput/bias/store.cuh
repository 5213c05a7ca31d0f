// A consumer's part of a tile of dBias: sums over queries or keys, and stores.
#pragma once

#include <cstdint>

#include "cuda/attention/softmax.cuh"
#include "cuda/backward_sm90/throughput/bias/consumer.cuh"
#include "cuda/backward_sm90/throughput/bias/walk.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

inline constexpr int kBothBarrier = 1,
                     kOwnBarrier = 2;  // named: of both consumers; + group: its own

// Where an element of dBias lies, and its value.
__device__ __forceinline__ void store_bias(const BiasTarget& to, const BiasItem& item, int query,
                                           int key, float value) {
  if (query >= to.extents[2] || key >= to.extents[3]) return;
  attention::store_element(
      to.type, to.data,
      item.batch * to.batch + item.head * to.head + query * to.query + key * to.key, value);
}

// A tile with a sum that is not finite is computed again.
template <class S>
__device__ __forceinline__ void BiasConsumer<S>::mark(int item) const {
  float zero = 0;  // or NaN
#pragma unroll
  for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) zero = fmaf(sums[n][e], 0, zero);
  }
  if (zero != 0) atomicExch(params.marks + item, 1U);
}

// Rows of 16 bits, through the consumer's part of the step's last slot.
template <class S>
__device__ __forceinline__ void BiasConsumer<S>::store_rows(const BiasItem& item,
                                                            uint32_t slot) const {
  const BiasTarget& to = params.d_bias;
  const uint32_t l = lane();
  const auto chunk_at = [&](uint32_t row, uint32_t half) {
    return shared + S::staged_row(slot, group, row) + (((warp() * 2 + half) ^ (row % 8)) << 4);
  };
  ptx::named_barrier_sync(kOwnBarrier + static_cast<int>(group), kWarpgroupThreads);  // V is read
#pragma unroll
  for (int n = 0; n < S::kScoreProducts; n += 2) {
    uint32_t of[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&from)[4] = sums[n + i / 2];
      of[i] = attention::pack_pair(to.type, from[i % 2 * 2], from[i % 2 * 2 + 1]);
    }
    ptx::stmatrix_x4_trans(chunk_at(8 * n + l / 16 * 8 + l % 8, l / 8 % 2), of[0], of[1], of[2],
                           of[3]);
  }
  __syncwarp();
  const int key =
      item.k_tile * kBiasTile + static_cast<int>(group * kWarpgroupKeys + warp() * 16 + l % 2 * 8);
  auto* const data =
      static_cast<uint16_t*>(to.data) + item.batch * to.batch + item.head * to.head + key * to.key;
#pragma unroll
  for (int i = 0; i < kBiasTile / 16; ++i) {
    const uint32_t row = 16 * i + l / 2;
    const int query = item.q_tile * kBiasTile + static_cast<int>(row);
    if (query >= to.extents[2]) continue;
    const uint4 x = ptx::load_shared_x4(chunk_at(row, l % 2));
    uint16_t* const at = data + query * to.query;
    if (to.chunks && key + 8 <= to.extents[3]) {
      *reinterpret_cast<uint4*>(at) = x;
      continue;
    }
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (key + e < to.extents[3]) {
        at[e * to.key] = static_cast<uint16_t>(words[e / 2] >> (16 * (e % 2)));
      }
    }
  }
  __syncwarp();  // wgmma wants all lanes
}

template <class S>
__device__ __forceinline__ void BiasConsumer<S>::store_elements(const BiasItem& item) const {
  const int key = item.k_tile * kBiasTile + lane_key(*this);
  const int query = item.q_tile * kBiasTile + 2 * static_cast<int>(lane() % 4);
#pragma unroll
  for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      store_bias(params.d_bias, item, query + 8 * n + e % 2, key + 8 * (e / 2), sums[n][e]);
    }
  }
}

// Sums over queries, into a lane's first element of each of its keys.
template <class S>
__device__ __forceinline__ void BiasConsumer<S>::add_queries() {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) sum += sums[n][2 * slot] + sums[n][2 * slot + 1];
    sums[0][2 * slot] = attention::quad_sum(sum);
  }
}

// Sums over keys, of warps through the step's last slot; with those over queries, one number.
template <class S>
__device__ __forceinline__ void BiasConsumer<S>::store_sums_of_keys(const BiasItem& item,
                                                                    uint32_t slot) {
  constexpr int kThreadsOfBoth = kConsumers * kWarpgroupThreads;
  const auto own = static_cast<int>(group * kWarpgroupWarps + warp());
  auto* const parts = reinterpret_cast<float*>(smem.ring[slot]);
  ptx::named_barrier_sync(kBothBarrier, kThreadsOfBoth);  // V and dO are read
#pragma unroll
  for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = sums[n][e] + sums[n][e + 2];
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        sum += __shfl_xor_sync(0xffffffffU, sum, step);
      }
      if (lane() < 4) {
        parts[own * kBiasTile + 8 * n + 2 * static_cast<int>(lane()) + e] = sum;
      }
    }
  }
  ptx::named_barrier_sync(kBothBarrier, kThreadsOfBoth);
  const bool sums_queries = params.d_bias.sums(2);
  const int query = static_cast<int>(ptx::thread_index()) - kWarpgroupThreads;
  if (query < (sums_queries ? 1 : kBiasTile)) {
    float sum = 0;
    for (int i = query; i < kConsumerWarps * kBiasTile; i += sums_queries ? 1 : kBiasTile) {
      sum += parts[i];
    }
    store_bias(params.d_bias, item, item.q_tile * kBiasTile + query, 0, sum);
  }
  __syncwarp();
}

template <class S>
__device__ __forceinline__ void BiasConsumer<S>::store(const BiasItem& item, uint32_t slot) {
  const BiasTarget& to = params.d_bias;
  if (to.sums(3)) {
    store_sums_of_keys(item, slot);
  } else if (to.sums(2)) {
    add_queries();
    const int key = item.k_tile * kBiasTile + lane_key(*this);
    if (lane() % 4 == 0) {
      store_bias(to, item, 0, key, sums[0][0]);
      store_bias(to, item, 0, key + 8, sums[0][2]);
    }
    __syncwarp();
  } else if (to.type == ElementType::f32) {
    store_elements(item);
  } else {
    store_rows(item, slot);
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
