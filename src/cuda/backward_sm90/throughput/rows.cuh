// What the launches by rows have in common: dQ of a block of queries from its sums.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
static_assert(kRowWarps == kConsumerWarps);

// dQ of a block, and which of its rows are not finite.
template <int kConfigIndex>
struct BlockRows {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kStep = kConfig.head_dim + 8;  // from row to row, in rows of 16-byte chunks
  alignas(16) uint16_t x[kConfig.block_q][kStep];
  uint32_t not_finite[kConfig.block_q];
};

// By all threads of a block of kRowThreads; nobody has marked a row yet.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void gather_sums(BlockRows<kConfigIndex>& rows, const Params& p,
                                            int64_t number, bool has_sums) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q, kDims = kConfig.head_dim;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  if (!has_sums) {
    for (int i = thread; i < kBlockQ * kDims; i += kRowThreads) rows.x[i / kDims][i % kDims] = 0;
    return;
  }
  const auto* const sums = reinterpret_cast<const float4*>(
      p.sums + number * kConfig.block_sums() + warp * (kConfig.dq_products() * 32 * kSumsFloats));
#pragma unroll 4
  for (int n = 0; n < kConfig.dq_products(); ++n) {
    const float4 x = sums[n * 32 + lane];
    const float of[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const SumPlace place = sum_place(kConfig, warp, n, lane, e);
      rows.x[place.query][place.dim] = static_cast<uint16_t>(Element::pack(of[e] * p.scale, 0));
      if (of[e] * 0 != 0) atomicExch(&rows.not_finite[place.query], 1U);
    }
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
