// Packs a boolean mask of bytes into bits: a warp has 32 queries and 128 keys, four keys a lane.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/mask_bits.hpp"

namespace flashcore::cuda::attention {
namespace {

// Returns a bit for each byte that is not 0, the first byte's lowest.
__device__ __forceinline__ uint32_t bits_of_bytes(uint32_t bytes) {
  bytes |= bytes >> 4;
  bytes |= bytes >> 2;
  bytes |= bytes >> 1;
  return ((bytes & 0x01010101U) * 0x01020408U) >> 24 & 0xfU;
}

// Four bits of a query: of keys `key` to `key + 3`.
__device__ __forceinline__ uint32_t four_bits(const PackMask& p, const uint8_t* of_query, int key) {
  if (p.four_keys && key + 4 <= p.keys) {
    return bits_of_bytes(__ldg(reinterpret_cast<const uint32_t*>(of_query + key)));
  }
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (key + i < p.keys && __ldg(of_query + (key + i) * p.key) != 0) bits |= 1U << i;
  }
  return bits;
}

// Eight lanes have four bits of each of eight queries. Returns 32 bits of the query of this lane's place among them.
__device__ __forceinline__ uint32_t bits_of_own_query(uint32_t bits, uint32_t lane) {
  constexpr uint32_t kFirst[] = {0x0f0f0f0fU, 0x00ff00ffU, 0x0000ffffU};
#pragma unroll
  for (int i = 2; i >= 0; --i) {
    const uint32_t step = 1U << i, first = kFirst[i];
    const uint32_t other = __shfl_xor_sync(0xffffffffU, bits, static_cast<int>(step));
    bits = (lane & step) == 0 ? (bits & first) | (other & first) << (4 * step)
                              : (bits & ~first) | (other & ~first) >> (4 * step);
  }
  return bits;
}

__global__ void __launch_bounds__(kPackWarps * 32, 4)
    pack_mask_bits_kernel(const __grid_constant__ PackMask p) {
  int64_t place = int64_t{blockIdx.x} * kPackWarps + threadIdx.x / 32;
  if (place >= p.warps()) return;
  const uint32_t lane = threadIdx.x % 32;
  const auto key_group = static_cast<int>(place % p.key_groups);
  place /= p.key_groups;
  const auto query_group = static_cast<int>(place % p.query_groups);
  place /= p.query_groups;
  const int64_t head = place % p.heads, batch = place / p.heads;
  const int first_query = query_group * kPackedQueries, first_key = key_group * kPackedKeys;
  const int key = first_key + 4 * static_cast<int>(lane);
  const uint8_t* const mask = p.mask + batch * p.batch + head * p.head + first_query * p.query;
  uint32_t* const words = p.bits.words + batch * p.bits.batch + head * p.bits.head;
  uint32_t of_keys[4] = {};  // a word of queries for each of the lane's keys
#pragma unroll 1
  for (int first = 0; first < kPackedQueries; first += 8) {
    uint32_t bits = 0;  // four for each of eight queries
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first_query + first + i >= p.queries) continue;
      bits |= four_bits(p, mask + (first + i) * p.query, key) << (4 * i);
    }
    if (p.along == BitsAlong::keys) {
      const uint32_t word = bits_of_own_query(bits, lane);
      const int query = first_query + first + static_cast<int>(lane % 8);
      if (query < p.queries) {
        words[query * p.bits.query + 4 * key_group + static_cast<int>(lane / 8)] = word;
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          of_keys[k] |= (bits >> (4 * i + k) & 1U) << (first + i);
        }
      }
    }
  }
  if (p.along == BitsAlong::keys) return;
  if (p.bits.query == 0) {  // one query stands for all
#pragma unroll
    for (uint32_t& word : of_keys) word = 0U - (word & 1U);
  }
  *reinterpret_cast<uint4*>(words + query_group * p.bits.query + key) =
      make_uint4(of_keys[0], of_keys[1], of_keys[2], of_keys[3]);
}

}  // namespace
}  // namespace flashcore::cuda::attention
