// Where a consumer meets the options of pairs (options.cuh): which of them a block needs, and from where.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/throughput/options.cuh"
#include "cuda/forward_sm90/throughput/scores.cuh"
#include "cuda/forward_sm90/throughput/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/registers.cuh"

namespace flashcore::cuda::forward_sm90::throughput {

template <class S>
struct Consumer;

// A block's ALiBi. On one side of the diagonal it is a step for each column, and a part for each row,
// which is subtracted from exponents with the reference.
struct BlockAlibi {
  float base[2];   // what is subtracted for the lane's rows
  float distance;  // see alibi_distance
  int side;        // see alibi_side
};
struct NoBlockAlibi {};

template <class S>
__device__ __forceinline__ LanePairs lane_pairs(const Consumer<S>& c, int key) {
  const TaskInfo& t = c.task();
  return {t.first_query + c.row(), key + 2 * (c.lane() % 4), t.len_q - 1, t.limits.len_kv - 1};
}

// Returns the key on the diagonal of the lane's row of slot 0, minus its first key.
template <class S>
__device__ __forceinline__ float alibi_distance(const Consumer<S>& c, const LanePairs& at) {
  return static_cast<float>(at.row + c.options().diagonal - at.key);
}

// Returns 1 if all pairs of the warpgroup's rows and a block lie before the diagonal, -1 if behind it; 0 if
// neither, or if the slope is too steep.
template <class S>
__device__ __forceinline__ int alibi_side(const Consumer<S>& c, int key) {
  const int64_t first = c.task().first_query + c.first_row() + c.options().diagonal - key;
  const bool before = first >= S::kBlockKv - 1, behind = first + kWarpgroupRows - 1 <= 0;
  const bool flat = fabsf(c.options().alibi_step * c.params.exponent_scale) <= kSteepest;
  const int side = !flat ? 0 : before ? 1 : behind ? -1 : 0;
  return static_cast<int>(ptx::uniform(static_cast<uint32_t>(side)));
}

// Adds biases of the first kProducts products from the slot, and releases it.
template <class S, int kProducts>
__device__ __forceinline__ void add_bias(Consumer<S>& c) {
  const auto group = static_cast<uint32_t>(c.group);
  ptx::mbarrier_wait_together(c.shared + S::kBiasFull + 8 * group, c.bias_at.parity());
  const uint32_t slot = c.shared + S::kBias + group * S::BiasTile::kBytes;
  const float factor = c.params.to_scores;
  if (c.params.bias_is_f16) {
    add_copied_bias<S, attention::Fp16, kProducts>(c.s, slot, c.warp(), c.lane(), factor);
  } else {
    add_copied_bias<S, attention::Bf16, kProducts>(c.s, slot, c.warp(), c.lane(), factor);
  }
  __syncwarp();
  if (c.lane() == 0) ptx::mbarrier_arrive(c.shared + S::kBiasEmpty + 8 * group);
  c.bias_at.next();
}

template <class S, int kProducts>
__device__ __forceinline__ void apply_mask(Consumer<S>& c, const LanePairs& at, int key) {
  MaskWords<S> words;
  words.load(c.params, c.options().words, at, key);
  words.template apply<kProducts>(c.s, 2 * (c.lane() % 4));
}

// Options on the first kProducts products. kAgain: the block's slot of biases has been read before.
template <class S, int kProducts, bool kAgain>
__device__ __forceinline__ void apply_options(Consumer<S>& c, int left) {
  const auto& p = c.params;
  if (p.scales_first) scale_scores<S, kProducts>(c.s, p);
  const int key = c.first_key(left);
  const LanePairs at = lane_pairs(c, key);
  if (p.alibi_slopes.data != nullptr) {
    add_alibi<S, kProducts>(c.s, c.options().alibi_step, alibi_distance(c, at));
  }
  if (p.bias.data != nullptr) {
    if constexpr (kAgain) {
      add_any_bias<S>(c.s, p, c.options().bias, at, p.to_scores);
    } else {
      add_bias<S, kProducts>(c);
    }
  }
  if (p.mask.words != nullptr) apply_mask<S, kProducts>(c, at, key);
}

template <class S>
__device__ __forceinline__ void begin_alibi(Consumer<S>& c, int left) {
  c.alibi.distance = 0, c.alibi.side = 0;  // else the last block's would be kept in registers
  if (c.params.alibi_slopes.data == nullptr) return;
  const int key = c.first_key(left);
  c.alibi.distance = alibi_distance(c, lane_pairs(c, key));
  c.alibi.side = alibi_side(c, key);
}

// While the scores of a later block are computed: what its ALiBi needs besides them, if registers allow it.
template <class S>
__device__ __forceinline__ void begin_options(Consumer<S>& c, int left) {
  if constexpr (S::kBeginsAlibi) begin_alibi(c, left);
}

// A faster apply_options() for a later block.
template <class S>
__device__ __forceinline__ void try_options(Consumer<S>& c, int left) {
  if constexpr (!S::kBeginsAlibi) begin_alibi(c, left);
  const auto& p = c.params;
  BlockAlibi& alibi = c.alibi;
  alibi.base[0] = c.reference[0], alibi.base[1] = c.reference[1];
  if (p.scales_first) scale_scores<S, S::kKeyProducts>(c.s, p);
  if (p.alibi_slopes.data != nullptr) {
    if (alibi.side != 0) {
      const float step = static_cast<float>(-alibi.side) * c.options().alibi_step;
      add_alibi_columns<S>(c.s, step);
      const float by_row = step * p.exponent_scale;
      alibi.base[0] = fmaf(by_row, alibi.distance, alibi.base[0]);
      alibi.base[1] = fmaf(by_row, alibi.distance + 8, alibi.base[1]);
    } else {
      add_alibi<S, S::kKeyProducts>(c.s, c.options().alibi_step, alibi.distance);
    }
  }
  if (p.bias.data != nullptr) add_bias<S, S::kKeyProducts>(c);
  if (p.mask.words != nullptr) {
    const int key = c.first_key(left);
    apply_mask<S, S::kKeyProducts>(c, lane_pairs(c, key), key);
  }
}

// A row whose mask leaves it no key is right as it is: it needs no second computation.
template <class S>
__device__ __forceinline__ void accept_rows_without_keys(Consumer<S>& c) {
  if (c.params.mask.words == nullptr) return;
  const bool none = c.reference[0] == kNoReference || c.reference[1] == kNoReference;
  if (!__any_sync(0xffffffffU, none)) return;
  const TaskInfo& t = c.task();
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int query = t.first_query + c.row() + 8 * slot;
    const int begin = max(0, query + t.limits.low);
    const int end = query < t.len_q ? min(t.limits.len_kv, query + t.limits.high + 1) : begin;
    const uint32_t* const row = c.options().words + min(query, t.len_q - 1) * c.params.mask.query;
    const uint32_t seen = seen_bits(row, begin, end, t.limits.len_kv, c.lane() % 4);
    if (seen == 0 && c.reference[slot] == kNoReference) c.reference[slot] = 0;
  }
}

}  // namespace flashcore::cuda::forward_sm90::throughput
