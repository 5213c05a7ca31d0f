// A consumer's scores and weights with a bias, a mask, ALiBi or dropout.
//
//   scores    a gets terms (pair_terms.cuh)
//   weights   P loses what the mask removes; then a copy is kept for dS, and P, for dV, loses what dropout removes
//   dS        copy (m dP - delta): a pair that dropout removed is one whose P is 0
//   dSlopes   sums of dS times the distance from the diagonal, in fp32, by head
//
// Whatever is not finite here makes sums that are not, and rows are computed again (exact.cuh).
#pragma once

#include <cstdint>

#include "cuda/attention/softmax.cuh"
#include "cuda/backward_sm90/throughput/consumer.cuh"
#include "cuda/backward_sm90/throughput/pair_terms.cuh"
#include "cuda/ptx/byte_signs.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
__device__ __forceinline__ PairTile pair_tile(const Consumer<S>& c, const Step& step) {
  const EntryTask& task = c.smem.task;
  const int key = task.tile * kBlockKeys;
  return {S::pair_terms().entry, step.head,
          step.first + key,      key,
          task.rows.len_q - 1,   task.rows.limits.len_kv - 1,
          S::pair_terms().offset};
}

// What comes before the exponentials.
template <class S>
__device__ __forceinline__ void add_pair_terms(Consumer<S>& c, int number) {
  const Pairs& pairs = c.params.pairs;
  const Step& step = c.smem.step[number % kSteps];
  if (pairs.has_slot()) c.wait(S::kPairFull, number % 2);
  // Found where it is used: there are no registers for it.
  const auto tile = [&] { return pair_tile(c, step); };
  add_any_bias<S::kConfig.has_wide_bias()>(c, tile, c.shared + S::kBias);
  if (pairs.slopes != nullptr) add_alibi(c, tile());
  if (pairs.dropout) draw(c, tile(), S::pair_terms().key);
}

// P loses what the mask removes: pairs of halves, a word for 32 queries of a key.
template <class S>
__device__ __forceinline__ void remove_masked(Consumer<S>& c) {
  const uint32_t first = 2 * (c.lane() % 4);  // of the lane's queries among eight
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const uint32_t from = c.shared + S::kBits + (lane_key(c) + 8 * slot) * sizeof(uint32_t);
#pragma unroll
    for (int word = 0; word < S::kBlockQ / attention::kMaskWordBits; ++word) {
      const uint32_t bits = ptx::load_shared_word(from + word * (kBlockKeys * sizeof(uint32_t)));
      const uint32_t even = bits << (7 - first), odd = bits << (6 - first);
      const auto keep = [&](int n, uint32_t halves) { c.p[n / 2][n % 2 * 2 + slot] &= halves; };
      keep(4 * word, ptx::byte_signs<0>(even, odd));
      keep(4 * word + 1, ptx::byte_signs<1>(even, odd));
      keep(4 * word + 2, ptx::byte_signs<2>(even, odd));
      keep(4 * word + 3, ptx::byte_signs<3>(even, odd));
    }
  }
}

// P loses what dropout removes, after a copy.
template <class S>
__device__ __forceinline__ void remove_dropped(Consumer<S>& c) {
#pragma unroll
  for (int step = 0; step < S::kQuerySteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c.sloped[step][i] = c.p[step][i];
  }
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
#pragma unroll
    for (int word = 0; word < S::kScoreProducts / 8; ++word) {
      const uint32_t low = drawn_by(c, word, 2 * slot), high = drawn_by(c, word, 2 * slot + 1);
      const auto keep = [&](int pair, uint32_t of_even, uint32_t of_odd) {
        uint32_t(&p)[4] = c.p[4 * word + pair];
        p[slot] &= of_even;
        p[2 + slot] &= of_odd;
      };
      keep(0, ptx::byte_signs<0>(low << 4, high << 4), ptx::byte_signs<0>(low, high));
      keep(1, ptx::byte_signs<1>(low << 4, high << 4), ptx::byte_signs<1>(low, high));
      keep(2, ptx::byte_signs<2>(low << 4, high << 4), ptx::byte_signs<2>(low, high));
      keep(3, ptx::byte_signs<3>(low << 4, high << 4), ptx::byte_signs<3>(low, high));
    }
  }
}

// What comes after the exponentials, once P is packed.
template <class S>
__device__ __forceinline__ void remove_pairs(Consumer<S>& c) {
  const Pairs& pairs = c.params.pairs;
  if (pairs.mask.data != nullptr) remove_masked(c);
  // Each thread arrives: racecheck does not follow one arrival on behalf of a warp.
  if (pairs.has_slot()) ptx::mbarrier_arrive(c.shared + S::kPairEmpty);
  if (pairs.dropout) remove_dropped(c);
}

// p = sloped (m a - delta), where P, still in p, tells kept pairs: turns P into dS.
template <class S>
__device__ __forceinline__ void weigh_dropped(Consumer<S>& c, uint32_t stage) {
  using Element = typename S::Element;
  const uint32_t row_stats = c.row_stats_at(stage, 1);
  const float rescale = c.params.pairs.rescale;
#pragma unroll
  for (int n = 0; n < S::kScoreProducts; ++n) {
    const float2 delta = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      uint32_t& pair = c.p[n / 2][n % 2 * 2 + slot];
      const float2 weight = Element::unpack(c.sloped[n / 2][n % 2 * 2 + slot]);
      const float low = (pair & 0xffffU) != 0 ? rescale : 0.0F;
      const float high = (pair & 0xffff0000U) != 0 ? rescale : 0.0F;
      float &x = c.a[n][2 * slot], &y = c.a[n][2 * slot + 1];
      x = weight.x * fmaf(x, low, -delta.x);
      y = weight.y * fmaf(y, high, -delta.y);
      pair = Element::pack(x, y);
    }
  }
}

// The sums of the warp's keys and of query head `head` of the tile's group.
template <class S>
__device__ __forceinline__ float& slope_term(const Consumer<S>& c, int head) {
  const int64_t first =
      int64_t{c.smem.tile} * c.params.group - c.smem.task.kv_head * c.params.group;
  return c.params.pairs.slope_terms[(first + head) * kConsumerWarps + c.consumer_warp()];
}
template <class S>
__device__ __forceinline__ void clear_slope_terms(const Consumer<S>& c) {
  if (c.params.pairs.slope_terms == nullptr || c.lane() != 0) return;
  const int first = c.smem.task.kv_head * c.params.group;
  for (int head = first; head < first + c.params.group; ++head) slope_term(c, head) = 0;
}

// Adds dS, in a, times distances. One lane adds, so the order is fixed.
template <class S>
__device__ __forceinline__ void add_distances(Consumer<S>& c, int number) {
  const Step& step = c.smem.step[number % kSteps];
  float sum = 0;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float distance = first_distance(c, pair_tile(c, step), slot);
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sum = fmaf(c.a[n][2 * slot + e], fabsf(distance + static_cast<float>(8 * n + e)), sum);
      }
    }
  }
  sum = attention::warp_sum(sum);
  if (c.lane() == 0) atomicAdd(&slope_term(c, step.head), sum);
}

template <class S>
__device__ __forceinline__ void weigh_pairs(Consumer<S>& c, int number) {
  const uint32_t stage = number % kStages;
  if (c.params.pairs.dropout) {
    weigh_dropped(c, stage);
  } else {
    c.weigh_kept(stage);
  }
  if (c.params.pairs.slope_terms != nullptr) add_distances(c, number);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
