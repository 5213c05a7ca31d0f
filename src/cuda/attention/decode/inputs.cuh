// The inputs of decode kernels: pairs of Q's elements, and the addresses of keys.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/params.hpp"

namespace flashcore::cuda::attention::decode {

// Returns columns `column` and + 1 of a row of Q, packed, with zeros past its end.
__device__ __forceinline__ uint32_t query_pair(const Params& p, const uint16_t* row, int column) {
  if (p.pairs && column + 1 < p.head_dim_qk) {
    return __ldg(reinterpret_cast<const uint32_t*>(row + column));
  }
  const uint32_t low = column < p.head_dim_qk ? __ldg(row + column) : uint16_t{0};
  const uint32_t high = column + 1 < p.head_dim_qk ? __ldg(row + column + 1) : uint16_t{0};
  return low | high << 16;
}

// Indices into K and V of a key's rows, and its scales.
struct KeyPlace {
  int lead, row;
  float k_scale, v_scale;
};

__device__ __forceinline__ float scale_of(const KeyScales& s, int lead, int kv_head, int block) {
  if (s.data == nullptr) return 1;
  return __ldg(s.data + (lead * s.lead + kv_head * s.head + block * s.block));
}

// kScales: K and V may have scales. A page index out of range is reported.
template <bool kScales>
__device__ __forceinline__ KeyPlace find_place(const Params& p, const CachedEntry& entry, int batch,
                                               int kv_head, int key) {
  const CachedKey at = find_cached_key(p.cache, entry, batch, key,
                                       [](const int32_t* number) { return __ldg(number); });
  if (at.page_out_of_range && p.cache.page_status != nullptr) atomicExch(p.cache.page_status, 1);
  KeyPlace place{at.lead, at.row, 1, 1};
  if constexpr (kScales) {
    if (p.scaled) {
      const auto block =
          static_cast<int>(p.by_scale_block.divide(static_cast<uint32_t>(at.scale_row)));
      place.k_scale = scale_of(p.k_scale, at.lead, kv_head, block);
      place.v_scale = scale_of(p.v_scale, at.lead, kv_head, block);
    }
  }
  return place;
}

}  // namespace flashcore::cuda::attention::decode
