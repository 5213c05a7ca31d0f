// A consumer's rows of dK and dV: staged in the memory of K and V, then stored.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/consumer.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

// Stages a consumer's rows of a tile of dK or dV in the memory of K or V.
template <class S>
__device__ __forceinline__ void Consumer<S>::stage_rows(uint32_t to,
                                                        const float (&sums)[S::kDimProducts][4],
                                                        float scale) const {
  const uint32_t l = lane(), row = group * kWarpgroupKeys + warp() * 16 + l % 16;
#pragma unroll
  for (int n = 0; n < S::kDimProducts; n += 2) {
    const uint32_t chunk = n + l / 16;
    ptx::stmatrix_x4(shared + to + chunk / 8 * KTile::kPanelBytes + row * KTile::kPanelRowBytes +
                         ((chunk % 8 ^ row % 8) << 4),
                     Element::pack(sums[n][0] * scale, sums[n][1] * scale),
                     Element::pack(sums[n][2] * scale, sums[n][3] * scale),
                     Element::pack(sums[n + 1][0] * scale, sums[n + 1][1] * scale),
                     Element::pack(sums[n + 1][2] * scale, sums[n + 1][3] * scale));
  }
}
template <class S>
__device__ __forceinline__ void Consumer<S>::stage_sums() {
  float dv_scale = 1;
  if constexpr (S::kPairs) dv_scale = params.pairs.rescale;
  stage_rows(S::kV, dv, dv_scale);
  ptx::named_barrier_sync(kAllConsumersBarrier, kConsumers * kWarpgroupThreads);  // done with K
  stage_rows(S::kK, dk, params.scale);
}
// Returns whether a lane's sums are all finite.
template <class S>
__device__ __forceinline__ bool Consumer<S>::all_finite() const {
  float zero = 0;  // or NaN
#pragma unroll
  for (int n = 0; n < S::kDimProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) zero = fmaf(dk[n][e], 0, fmaf(dv[n][e], 0, zero));
  }
  return zero == 0;
}
template <class S>
__device__ __forceinline__ void Consumer<S>::stage_zeros() const {
  const uint32_t thread = ptx::thread_index() % kWarpgroupThreads;
  for (uint32_t i = thread; i < KTile::kPanels * 512U; i += kWarpgroupThreads) {
    const uint32_t at = i / 512 * KTile::kPanelBytes + group * (64 * KTile::kPanelRowBytes);
    constexpr float kZeros[4] = {0, 0, 0, 0};
    ptx::store_shared_x4(shared + S::kK + at + i % 512 * 16, kZeros);
    ptx::store_shared_x4(shared + S::kV + at + i % 512 * 16, kZeros);
  }
}
// Stores the staged rows, after the whole consumer has staged them.
template <class S>
__device__ __forceinline__ void Consumer<S>::store_rows(const Maps& maps,
                                                        const typename S::OwnTask& task) const {
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kConsumerBarrier + static_cast<int>(group), kWarpgroupThreads);
  if constexpr (S::kOptions) {
    if (is_packed(params)) return store_rows_of_entry(task);
  }
  if (ptx::thread_index() % kWarpgroupThreads == 0) {
    const uint32_t own = group * (kWarpgroupKeys * KTile::kPanelRowBytes);
    const int row = task.tile * kBlockKeys + static_cast<int>(group) * kWarpgroupKeys;
    if (row < params.seqlen_kv) {
#pragma unroll
      for (int panel = 0; panel < KTile::kPanels; ++panel) {
        const uint32_t from = shared + panel * KTile::kPanelBytes + own;
        ptx::tma_store_4d(&maps.dv, from + S::kV, panel * kPanelColumns, row, task.kv_head,
                          task.batch);
        ptx::tma_store_4d(&maps.dk, from + S::kK, panel * kPanelColumns, row, task.kv_head,
                          task.batch);
      }
    }
    ptx::tma_store_commit();
  }
  if (ptx::thread_index() % kWarpThreads == 0) ptx::tma_store_wait_read<0>();
}
// In a packed batch, the rows after the sequence's belong to another sequence.
template <class S>
__device__ __forceinline__ void Consumer<S>::store_rows_of_entry(const EntryTask& task) const {
  const auto first = static_cast<int>(group * kWarpgroupKeys);
  const int left = task.rows.limits.len_kv - task.tile * kBlockKeys - first;
  store_staged(S::kV, params.dv, params.head_dim_v, task, first, left);
  store_staged(S::kK, params.dk, params.head_dim_qk, task, first, left);
}
// Stores up to `left` rows of the consumer; `first`: its first row in the tile.
template <class S>
__device__ __forceinline__ void Consumer<S>::store_staged(uint32_t staged, const Target& target,
                                                          int columns, const EntryTask& task,
                                                          int first, int left) const {
  constexpr int kChunks = KTile::kPanels * 8;
  auto* const to = static_cast<uint16_t*>(target.data) + task.kv_head * target.head +
                   int64_t{task.rows.kv_row + task.tile * kBlockKeys + first} * target.row;
  const auto thread = static_cast<int>(ptx::thread_index() % kWarpgroupThreads);
#pragma unroll 1
  for (int i = thread; i < kWarpgroupKeys * kChunks; i += kWarpgroupThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (row >= left || chunk * 8 >= columns) continue;
    const uint32_t from = shared + staged + chunk / 8 * KTile::kPanelBytes +
                          (first + row) * KTile::kPanelRowBytes + ((chunk % 8 ^ row % 8) << 4);
    *reinterpret_cast<uint4*>(to + row * target.row + chunk * 8) = ptx::load_shared_x4(from);
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
