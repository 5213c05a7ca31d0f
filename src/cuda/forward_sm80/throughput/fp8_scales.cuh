// The scales of elements stored in fp8 (docs/semantics.md: one
// scale per tensor, per sequence, per head, or per block of keys).
//
//   scores          times the scales of Q and K, in fp32, before any other operation
//   one scale of V  times the factor that normalises a row's outputs
//   V's by blocks   times the probabilities. A power of two makes the largest scale less than 2^14,
//                   and the outputs are divided by it at the end, so that fp16 holds small
//                   products; P has two terms, as under dropout
//
// A scale that is not finite makes its values not finite: the block is recomputed (value_guard.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/value_guard.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// True if a kernel's parameters contain scales.
template <class P>
inline constexpr bool kHasScales = std::is_base_of_v<Fp8Params, P>;

// The scales of a block.
struct BlockScales {
  float score;                       // of Q, times K's if all keys share one
  float value;                       // of V, if all keys share one; finite
  float largest[4];                  // the largest of V's block scales, in each warp's share
  const float *of_keys, *of_values;  // of key 0; null if all keys share one
};
__device__ __forceinline__ BlockScales& block_scales() { return ptx::static_shared<BlockScales>(); }

__device__ __forceinline__ bool is_finite(float x) { return x - x == 0; }

__device__ __forceinline__ float scale_of_key(const Fp8Params& p, const KeyScales& scales,
                                              const float* of_keys, int key) {
  return __ldg(of_keys + p.by_scale_block.divide(static_cast<uint32_t>(key)) * scales.block);
}

// Returns the largest finite scale of V for keys [begin, end) in this warp's share.
__device__ __forceinline__ float largest_scale(const Fp8Params& p, const float* of_values,
                                               int begin, int end, int thread, int threads) {
  float largest = 0;
  const auto last = static_cast<int>(p.by_scale_block.divide(static_cast<uint32_t>(end - 1)));
#pragma unroll 1
  for (int i = static_cast<int>(p.by_scale_block.divide(static_cast<uint32_t>(begin))) + thread;
       i <= last; i += threads) {
    const float size = fabsf(__ldg(of_values + i * p.v_scale.block));
    if (is_finite(size)) largest = fmaxf(largest, size);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  }
  return largest;
}

// Stores the scales of a block with keys [begin, end), to be read after a barrier.
// Returns true, on one thread, if V's scale is shared by all keys and is not finite.
template <Config kConfig>
__device__ __forceinline__ bool note_scales(const Fp8Params& p, const Task& task, int begin,
                                            int end, int thread) {
  const int kv_head = kv_head_of(p, task.head);
  const auto first = [&](const KeyScales& s) {
    return s.data + task.batch * s.batch + kv_head * s.head;
  };
  BlockScales& scales = block_scales();
  if (p.v_scale.by_key()) {
    const float largest =
        begin < end ? largest_scale(p, first(p.v_scale), begin, end, thread, kConfig.threads()) : 0;
    if (thread % 32 == 0) scales.largest[thread / 32] = largest;
  }
  if (thread != 0) return false;
  scales.of_keys = p.k_scale.by_key() ? first(p.k_scale) : nullptr;
  scales.of_values = p.v_scale.by_key() ? first(p.v_scale) : nullptr;
  const HeadVector& q = p.q_scale;
  scales.score =
      q.data == nullptr ? 1.0F : __ldg(q.data + task.batch * q.batch + task.head * q.head);
  if (p.k_scale.data != nullptr && !p.k_scale.by_key()) scales.score *= __ldg(first(p.k_scale));
  const bool shared = p.v_scale.data != nullptr && !p.v_scale.by_key();
  const float value = shared ? __ldg(first(p.v_scale)) : 1.0F;
  scales.value = is_finite(value) ? value : 0.0F;
  return !is_finite(value);
}

// Returns the power of two that makes V's block scales less than 2^14, as its exponent bits.
template <Config kConfig>
__device__ __forceinline__ uint32_t exponent_of_values() {
  const BlockScales& scales = block_scales();
  float largest = scales.largest[0];
#pragma unroll
  for (int warp = 1; warp < kConfig.warps; ++warp) largest = fmaxf(largest, scales.largest[warp]);
  constexpr int kTop = 13, kBias = 127, kSmallest = kBias - 100;
  const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23), kSmallest);
  return static_cast<uint32_t>(2 * kBias + kTop - exponent) << 23;
}

// Returns the factor of a row's outputs.
template <Config kConfig>
__device__ __forceinline__ float value_factor(const Fp8Params& p) {
  if (!p.v_scale.by_key()) return block_scales().value;
  return __uint_as_float((uint32_t{254} << 23) - exponent_of_values<kConfig>());
}

// Visits the scores of keys from first_key on, each with `of_key(key)`, which a lane evaluates once.
template <int kGroups, int kProducts, class OfKey, class Visit>
__device__ __forceinline__ void visit_keys(Scores<kGroups, kProducts>& s, int first_key, int len_kv,
                                           int lane, OfKey of_key, Visit visit) {
  const float own = of_key(min(first_key + lane % (8 * kProducts), len_kv - 1));
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float scale = __shfl_sync(0xffffffffU, own, 8 * n + 2 * (lane % 4) + e);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        visit(s[g][n][e], scale);
        visit(s[g][n][2 + e], scale);
      }
    }
  }
}

// Scales products of stored elements to products of the elements.
template <int kGroups, int kProducts>
__device__ __forceinline__ void scale_products(Scores<kGroups, kProducts>& s, const Fp8Params& p,
                                               int first_key, int len_kv, int lane) {
  const BlockScales& scales = block_scales();
  if (scales.of_keys != nullptr) {
    visit_keys(
        s, first_key, len_kv, lane,
        [&](int key) { return scales.score * scale_of_key(p, p.k_scale, scales.of_keys, key); },
        [](float& score, float scale) { score *= scale; });
    return;
  }
  const float scale = scales.score;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[g][n][e] *= scale;
    }
  }
}

// Multiplies probabilities by V's block scales. kFinite: scales that are not finite count as 0.
template <Config kConfig, bool kFinite, int kGroups, int kProducts>
__device__ __forceinline__ void scale_probabilities(Scores<kGroups, kProducts>& s,
                                                    const Fp8Params& p, int first_key, int len_kv,
                                                    int lane) {
  const float by = __uint_as_float(exponent_of_values<kConfig>());
  visit_keys(
      s, first_key, len_kv, lane,
      [&](int key) {
        const float scale = scale_of_key(p, p.v_scale, block_scales().of_values, key);
        return kFinite && !is_finite(scale) ? 0.0F : scale * by;
      },
      [](float& x, float scale) { x *= scale; });
}

// guarded() of an element times its scale.
__device__ inline uint32_t guarded_product(uint32_t bits, float scale, GuardPass pass) {
  const bool finite = (bits & 0x7fffU) < Fp8::kInfinity && is_finite(scale);
  if (pass == GuardPass::values) return finite ? bits : 0;
  if (finite) return 0;
  const float x = ptx::f16_to_float(static_cast<uint16_t>(bits)) * scale;
  if (x != x) return Fp8::kNanWeightBits;
  return x > 0 ? Fp8::kOne : Fp8::kNegativeWeightBits;
}

// guard_values() of a tile of fp16 whose first key
// is first_key, for its elements times their scales.
template <class Tile>
__device__ inline bool guard_scaled_values(unsigned char* tile, const Fp8Params& p,
                                           const Task& task, int first_key, GuardPass pass,
                                           int thread, int threads) {
  const BlockScales& scales = block_scales();
  float scale = 1;
  if (p.v_scale.data != nullptr && scales.of_values == nullptr) {
    const int kv_head = kv_head_of(p, task.head);
    scale = __ldg(p.v_scale.data + task.batch * p.v_scale.batch + kv_head * p.v_scale.head);
  }
  const int last = static_cast<int>(task.sequence.len_kv) - 1;
  bool found = false;
#pragma unroll 1
  for (int i = thread; i < Tile::kRows * Tile::kRowBytes / 4; i += threads) {
    const int row = i / (Tile::kRowBytes / 4), word_of_row = i % (Tile::kRowBytes / 4);
    if (scales.of_values != nullptr) {
      scale = scale_of_key(p, p.v_scale, scales.of_values, min(first_key + row, last));
    }
    uint32_t& word = *reinterpret_cast<uint32_t*>(tile + Tile::chunk_offset(row, word_of_row / 4) +
                                                  word_of_row % 4 * 4);
    const uint32_t low = word & 0xffffU, high = word >> 16;
    found = found || !is_finite(scale) || (low & 0x7fffU) >= Fp8::kInfinity ||
            (high & 0x7fffU) >= Fp8::kInfinity;
    word = guarded_product(low, scale, pass) | guarded_product(high, scale, pass) << 16;
  }
  return found;
}

}  // namespace flashcore::cuda::forward_sm80::throughput
