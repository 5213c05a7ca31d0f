// Biases of some keys, loaded from memory while the scores that they belong to are computed.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/scores.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// The part of a bias that is added: references are raised by the positive part, so that a bias
// that is very negative for the first keys does not leave a reference that later keys overflow.
enum class BiasPart { whole, positive, negative };

// Pieces of four neighbouring keys (KeyOrder::quads): one piece per 16 keys.
template <int kSlots, int kPieces>
struct FetchedBias {
  float4 quad[kSlots][kPieces];  // 16-bit types: all four in the bits of x and y

  // Fetches for all rows of the lane, 8 apart, and keys from first_key on. Past
  // the last query or key, the last one is read; the band masks it afterwards.
  __device__ __forceinline__ void fetch(const Params& p, const Task& task, const LanePlace& lane,
                                        int first_key) {
    const PairMatrix& m = p.bias;
    const int64_t head = task.batch * m.batch + task.head * m.head;
    const int last_query = static_cast<int>(task.sequence.len_q) - 1;
    const int column = first_key + lane.column, last = p.seqlen_kv - 4;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int64_t row = head + min(lane.row + 8 * slot, last_query) * m.query;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int64_t at = row + min(column + 16 * piece, last);
        if (p.bias_type == ElementType::f32) {
          read(slot, piece, static_cast<const float*>(m.data) + at);
        } else {
          read(slot, piece, static_cast<const uint16_t*>(m.data) + at);
        }
      }
    }
  }

  __device__ __forceinline__ void read(int slot, int piece, const float* at) {
    quad[slot][piece] = __ldg(reinterpret_cast<const float4*>(at));
  }
  __device__ __forceinline__ void read(int slot, int piece, const uint16_t* at) {
    const uint2 bits = __ldg(reinterpret_cast<const uint2*>(at));
    quad[slot][piece].x = __uint_as_float(bits.x);
    quad[slot][piece].y = __uint_as_float(bits.y);
  }

  // Returns the bias of key `i` of a piece.
  template <ElementType kType>
  __device__ __forceinline__ float value(int slot, int piece, int i) const {
    const float4& q = quad[slot][piece];
    if constexpr (kType == ElementType::f32) {
      return i < 2 ? (i == 0 ? q.x : q.y) : (i == 2 ? q.z : q.w);
    }
    const uint32_t bits = __float_as_uint(i < 2 ? q.x : q.y);
    if constexpr (kType == ElementType::bf16) {
      return __uint_as_float(i % 2 == 0 ? bits << 16 : bits & 0xffff0000U);
    }
    return ptx::f16_to_float(static_cast<uint16_t>(i % 2 == 0 ? bits : bits >> 16));
  }

  // Adds to scores, in all slots. A bias of -inf removes its pair, even if the score was NaN.
  template <BiasPart kPart, Units kUnits, int kGroups, int kProducts>
  __device__ __forceinline__ void add_to(Scores<kGroups, kProducts>& s, ElementType type) const {
    switch (type) {
      case ElementType::f32:
        return add<kPart, kUnits, ElementType::f32>(s);
      case ElementType::f16:
        return add<kPart, kUnits, ElementType::f16>(s);
      case ElementType::bf16:
        return add<kPart, kUnits, ElementType::bf16>(s);
      default:
        return;
    }
  }

 private:
  template <BiasPart kPart, Units kUnits, ElementType kType, int kGroups, int kProducts>
  __device__ __forceinline__ void add(Scores<kGroups, kProducts>& s) const {
    static_assert(kSlots == 2 * kGroups && kPieces == kProducts / 2);
    constexpr float kUnit = kPerNatural<kUnits>;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int n = 0; n < kProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float bias = value<kType>(slot, n / 2, n % 2 * 2 + e);
          float& score = s[slot / 2][n][slot % 2 * 2 + e];
          if (kPart == BiasPart::negative) {
            score = fmaf(bias > 0 ? 0.0F : bias, kUnit, score);
          } else {
            const float part = kPart == BiasPart::whole || bias > 0 ? bias : 0.0F;
            score = bias == kNoKey ? kNoKey : fmaf(part, kUnit, score);
          }
        }
      }
    }
  }
};

}  // namespace flashcore::cuda::forward_sm80::throughput
