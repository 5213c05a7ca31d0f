// Bias of a slice of keys, on its way from memory while the scores that it belongs to are computed.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/scores.cuh"

namespace flashcore::cuda::forward_sm80 {

template <int kGroups, int kProducts>
struct FetchedBias {
  float2 pair[kGroups][2][kProducts];  // 16-bit: both in the bits of x

  // Keys past the last read the last pair; the band removes them afterwards.
  __device__ __forceinline__ void fetch(const Params& p, const Task& task, const LanePlace& lane,
                                        int first_key) {
    const PairMatrix& m = p.bias;
    const int last_query = static_cast<int>(task.sequence.len_q) - 1;
    const int64_t head = task.batch * m.batch + task.head * m.head;
    const int column = first_key + lane.column, last_pair = p.seqlen_kv - 2;
    if (p.bias_type == ElementType::f32) {
      read(static_cast<const float*>(m.data) + head, m.query, lane, last_query, column, last_pair);
    } else {
      read(static_cast<const uint16_t*>(m.data) + head, m.query, lane, last_query, column,
           last_pair);
    }
  }

  __device__ __forceinline__ void add_to(Scores<kGroups, kProducts>& s, ElementType type) const {
    switch (type) {
      case ElementType::f32:
        return add(s, [](const float2& both) { return both; });
      case ElementType::f16:
        return add(s, [](const float2& both) {
          const uint32_t bits = __float_as_uint(both.x);
          return make_float2(ptx::f16_to_float(static_cast<uint16_t>(bits)),
                             ptx::f16_to_float(static_cast<uint16_t>(bits >> 16)));
        });
      case ElementType::bf16:
        return add(s, [](const float2& both) {
          const uint32_t bits = __float_as_uint(both.x);
          return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000U));
        });
    }
  }

 private:
  template <class Type>
  __device__ __forceinline__ void read(const Type* head, int64_t stride, const LanePlace& lane,
                                       int last_query, int column, int last_pair) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const Type* const row = head + min(lane.row + 16 * g + 8 * slot, last_query) * stride;
#pragma unroll
        for (int n = 0; n < kProducts; ++n) {
          const Type* const at = row + min(column + 8 * n, last_pair);
          if constexpr (sizeof(Type) == 4) {
            pair[g][slot][n] = __ldg(reinterpret_cast<const float2*>(at));
          } else {
            pair[g][slot][n].x = __uint_as_float(__ldg(reinterpret_cast<const uint32_t*>(at)));
          }
        }
      }
    }
  }

  template <class Values>
  __device__ __forceinline__ void add(Scores<kGroups, kProducts>& s, Values values) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
#pragma unroll
        for (int n = 0; n < kProducts; ++n) {
          const float2 both = values(pair[g][slot][n]);
          add_one_bias(s[g][n][2 * slot], both.x);
          add_one_bias(s[g][n][2 * slot + 1], both.y);
        }
      }
    }
  }
};

}  // namespace flashcore::cuda::forward_sm80
