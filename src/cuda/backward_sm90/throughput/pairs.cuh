// A consumer's scores and weights with a bias, a mask, ALiBi or dropout.
//
//   scores    a += bias / scale - slope / scale |distance|     so that one fma makes the exponent, as without them
//   weights   P loses what the mask removes; then a copy is kept for dS, and P, for dV, loses what dropout removes
//   dS        copy (m dP - delta): a pair that dropout removed is one whose P is 0
//
// Whatever is not finite here makes sums that are not, and rows are computed again (exact.cuh).
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/bias_element.cuh"
#include "cuda/backward_sm90/throughput/consumer.cuh"
#include "cuda/ptx/byte_signs.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

// A lane's first key in its tile; the other one is eight after it.
template <class S>
__device__ __forceinline__ int lane_key(const Consumer<S>& c) {
  return static_cast<int>(c.group * kWarpgroupKeys + c.warp() * 16 + c.lane() / 4);
}

// a += bias / scale of a tile in shared memory, whose pairs BiasElement unpacks.
template <class BiasElement, class S>
__device__ __forceinline__ void add_bias_tile(Consumer<S>& c) {
  using Tile = typename S::DsTile;
  const float factor = c.params.pairs.inverse_scale;
  const uint32_t l = c.lane(), row = l / 16 * 8 + l % 8, chunk = c.warp() * 2 + l / 8 % 2;
  const uint32_t from = c.shared + S::kBias + c.group * Tile::kPanelBytes +
                        row * Tile::kPanelRowBytes + ((chunk ^ (l % 8)) << 4);
#pragma unroll
  for (int step = 0; step < S::kQuerySteps; ++step) {
    uint32_t bias[4];
    ptx::ldmatrix_x4_trans(bias, from + step * 16 * Tile::kPanelRowBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&scores)[4] = c.a[2 * step + i / 2];
      const float2 pair = BiasElement::unpack(bias[i]);
      scores[i % 2 * 2] = fmaf(pair.x, factor, scores[i % 2 * 2]);
      scores[i % 2 * 2 + 1] = fmaf(pair.y, factor, scores[i % 2 * 2 + 1]);
    }
  }
}

// a += bias / scale of a tile of 32 bits: four panels of 32 keys, each with the swizzle of 128 bytes.
template <class S>
__device__ __forceinline__ void add_wide_bias_tile(Consumer<S>& c) {
  using Tile = typename S::DsTile;
  const float factor = c.params.pairs.inverse_scale;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const auto key = static_cast<uint32_t>(lane_key(c) + 8 * slot);
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row = 2 * (c.lane() % 4) + e;
      const uint32_t from = c.shared + S::kBias + key / 32 * Tile::kPanelBytes +
                            row * Tile::kPanelRowBytes + ((key % 32 / 4 ^ row) << 4) + key % 4 * 4;
#pragma unroll
      for (int n = 0; n < S::kScoreProducts; ++n) {
        float& score = c.a[n][2 * slot + e];
        const uint32_t bias = ptx::load_shared_word(from + n * 8 * Tile::kPanelRowBytes);
        score = fmaf(__uint_as_float(bias), factor, score);
      }
    }
  }
}

// a += bias / scale of any strides and types. Rows past the lengths read the last one that exists.
template <class S>
__device__ __forceinline__ void add_bias(Consumer<S>& c, const Step& step) {
  const Pairs& pairs = c.params.pairs;
  const EntryTask& task = c.smem.task;
  const int first_key = task.tile * kBlockKeys, last_query = task.rows.len_q - 1;
  const int query = step.first + first_key + 2 * static_cast<int>(c.lane() % 4);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int key = min(first_key + lane_key(c) + 8 * slot, task.rows.limits.len_kv - 1);
    const int64_t of_key =
        step.batch * pairs.bias.batch + step.head * pairs.bias.head + key * pairs.bias.key;
    if (pairs.bias.query == 0) {
      const float bias = bias_element(pairs, of_key) * pairs.inverse_scale;
#pragma unroll
      for (int n = 0; n < S::kScoreProducts; ++n) {
        c.a[n][2 * slot] += bias;
        c.a[n][2 * slot + 1] += bias;
      }
      continue;
    }
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t at = of_key + min(query + 8 * n + e, last_query) * pairs.bias.query;
        float& score = c.a[n][2 * slot + e];
        score = fmaf(bias_element(pairs, at), pairs.inverse_scale, score);
      }
    }
  }
}

template <class S>
__device__ __forceinline__ void add_alibi(Consumer<S>& c, const Step& step) {
  const Pairs& pairs = c.params.pairs;
  const float slope =
      __ldg(pairs.slopes + step.batch * pairs.slopes_batch + step.head * pairs.slopes_head);
  const float factor = -slope * pairs.inverse_scale;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const auto distance = static_cast<float>(step.first + 2 * static_cast<int>(c.lane() % 4) +
                                             S::pair_terms().offset - (lane_key(c) + 8 * slot));
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = c.a[n][2 * slot + e];
        score = fmaf(fabsf(distance + static_cast<float>(8 * n + e)), factor, score);
      }
    }
  }
}

// Which pairs dropout keeps. A Philox block serves four keys of a query, which four lanes have: each
// draws for one of the lane's two queries of a product and one of its two keys, which gives a bit
// for each of the four lanes; drawn: the bits of eight products. Exchanged in remove_dropped.
template <class S>
__device__ __forceinline__ void draw(Consumer<S>& c, const Step& step) {
  const Pairs& pairs = c.params.pairs;
  const uint32_t l = c.lane(), place = l / 4 % 4;
  const int first_key = c.smem.task.tile * kBlockKeys;
  const auto group = static_cast<uint32_t>(first_key + lane_key(c)) / 4 + 2 * (place / 2);
  const auto query = static_cast<uint32_t>(step.first + first_key) + 2 * (l % 4) + place % 2;
  const auto batch = static_cast<uint32_t>(step.batch), head = static_cast<uint32_t>(step.head);
  const PhiloxKey key = S::pair_terms().key;
#pragma unroll
  for (int word = 0; word < S::kScoreProducts / 8; ++word) {
    uint32_t own = 0;
#pragma unroll 2
    for (uint32_t n = 0; n < 8; ++n) {
      const PhiloxBlock words = dropout_words(key, batch, head, query + 64 * word + 8 * n, group);
      uint32_t bits = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) bits |= (words[k] > pairs.last_dropped ? 1U : 0U) << k;
      own |= bits << (4 * n);
    }
    c.drawn[word] = own;
  }
}

// What comes before the exponentials.
template <class S>
__device__ __forceinline__ void add_pair_terms(Consumer<S>& c, int number) {
  const Pairs& pairs = c.params.pairs;
  const Step& step = c.smem.step[number % kSteps];
  if (pairs.has_slot()) c.wait(S::kPairFull, number % 2);
  if (pairs.bias.data != nullptr) {
    if (!pairs.bias_tiles) {
      add_bias(c, step);
    } else if (S::kConfig.has_wide_bias() && pairs.bias_type == ElementType::f32) {
      add_wide_bias_tile(c);
    } else if (pairs.bias_type == ElementType::f16) {
      add_bias_tile<Fp16>(c);
    } else {
      add_bias_tile<Bf16>(c);
    }
  }
  if (pairs.slopes != nullptr) add_alibi(c, step);
  if (pairs.dropout) draw(c, step);
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
  const uint32_t l = c.lane(), place = l / 4 % 4;
#pragma unroll
  for (int step = 0; step < S::kQuerySteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c.sloped[step][i] = c.p[step][i];
  }
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
#pragma unroll
    for (int word = 0; word < S::kScoreProducts / 8; ++word) {
      // The lane's own bit of product n becomes the top one of four.
      const auto drawn_by = [&](uint32_t from) {
        const uint32_t lane = l / 16 * 16 + 4 * from + l % 4;
        return __shfl_sync(0xffffffffU, c.drawn[word], static_cast<int>(lane)) << (3 - place);
      };
      const uint32_t low = drawn_by(2 * slot), high = drawn_by(2 * slot + 1);
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
      pair = Element::pack(weight.x * fmaf(c.a[n][2 * slot], low, -delta.x),
                           weight.y * fmaf(c.a[n][2 * slot + 1], high, -delta.y));
    }
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
