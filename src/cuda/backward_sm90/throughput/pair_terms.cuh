// What a bias, ALiBi and dropout do to a tile's scores, for consumers whose accumulators `a` have keys as rows.
//
//   scores    a += bias / scale - slope / scale |distance|     so that one fma makes the exponent, as without them
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/bias_element.cuh"
#include "cuda/backward_sm90/common/operand.cuh"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_access.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

// Where a tile lies: its sequence, its head of queries and its first pair.
struct PairTile {
  int batch, head, query, key;
  int last_query, last_key;  // that exist
  int64_t offset;            // of the diagonal
};

// A lane's first key in its tile; the other one is eight after it.
template <class C>
__device__ __forceinline__ int lane_key(const C& c) {
  return static_cast<int>(c.group * kWarpgroupKeys + c.warp() * 16 + c.lane() / 4);
}

// a += bias / scale of a tile in shared memory at `tile`, whose pairs BiasElement unpacks.
template <class BiasElement, class C>
__device__ __forceinline__ void add_bias_tile(C& c, uint32_t tile) {
  using S = typename C::Shape;
  using Tile = typename S::DsTile;
  const float factor = c.params.pairs.inverse_scale;
  const uint32_t l = c.lane(), row = l / 16 * 8 + l % 8, chunk = c.warp() * 2 + l / 8 % 2;
  const uint32_t from =
      tile + c.group * Tile::kPanelBytes + row * Tile::kPanelRowBytes + ((chunk ^ (l % 8)) << 4);
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
template <class C>
__device__ __forceinline__ void add_wide_bias_tile(C& c, uint32_t tile) {
  using S = typename C::Shape;
  using Tile = typename S::DsTile;
  const float factor = c.params.pairs.inverse_scale;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const auto key = static_cast<uint32_t>(lane_key(c) + 8 * slot);
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row = 2 * (c.lane() % 4) + e;
      const uint32_t from = tile + key / 32 * Tile::kPanelBytes + row * Tile::kPanelRowBytes +
                            ((key % 32 / 4 ^ row) << 4) + key % 4 * 4;
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
template <class C>
__device__ __forceinline__ void add_bias(C& c, const PairTile& tile) {
  using S = typename C::Shape;
  const Pairs& pairs = c.params.pairs;
  const int query = tile.query + 2 * static_cast<int>(c.lane() % 4);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int key = min(tile.key + lane_key(c) + 8 * slot, tile.last_key);
    const int64_t of_key =
        tile.batch * pairs.bias.batch + tile.head * pairs.bias.head + key * pairs.bias.key;
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
        const int64_t at = of_key + min(query + 8 * n + e, tile.last_query) * pairs.bias.query;
        float& score = c.a[n][2 * slot + e];
        score = fmaf(bias_element(pairs, at), pairs.inverse_scale, score);
      }
    }
  }
}

// a += bias / scale, if there is a bias; `tile()`: where it lies; `shared`: where tiles of it are copied to.
template <bool kMayBeWide, class C, class FindTile>
__device__ __forceinline__ void add_any_bias(C& c, const FindTile& tile, uint32_t shared) {
  const Pairs& pairs = c.params.pairs;
  if (pairs.bias.data == nullptr) return;
  if (!pairs.bias_tiles) {
    add_bias(c, tile());
  } else if (kMayBeWide && pairs.bias_type == ElementType::f32) {
    add_wide_bias_tile(c, shared);
  } else if (pairs.bias_type == ElementType::f16) {
    add_bias_tile<Fp16>(c, shared);
  } else {
    add_bias_tile<Bf16>(c, shared);
  }
}

// The distance from the diagonal of a lane's first query and its first or second key; negative on one side.
template <class C>
__device__ __forceinline__ float first_distance(const C& c, const PairTile& tile, int slot) {
  return static_cast<float>(tile.query - tile.key + 2 * static_cast<int>(c.lane() % 4) +
                            tile.offset - (lane_key(c) + 8 * slot));
}

template <class C>
__device__ __forceinline__ void add_alibi(C& c, const PairTile& tile) {
  using S = typename C::Shape;
  const Pairs& pairs = c.params.pairs;
  const float slope =
      __ldg(pairs.slopes + tile.batch * pairs.slopes_batch + tile.head * pairs.slopes_head);
  const float factor = -slope * pairs.inverse_scale;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float distance = first_distance(c, tile, slot);
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
// for each of the four lanes; drawn: the bits of eight products, which drawn_by exchanges.
template <class C>
__device__ __forceinline__ void draw(C& c, const PairTile& tile, PhiloxKey key) {
  using S = typename C::Shape;
  const Pairs& pairs = c.params.pairs;
  const uint32_t l = c.lane(), place = l / 4 % 4;
  const auto group = static_cast<uint32_t>(tile.key + lane_key(c)) / 4 + 2 * (place / 2);
  const auto query = static_cast<uint32_t>(tile.query) + 2 * (l % 4) + place % 2;
  const auto batch = static_cast<uint32_t>(tile.batch), head = static_cast<uint32_t>(tile.head);
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

// The lane's bits of eight products, for its query `slot_query` % 2 and its key slot_query / 2: product n has bit 4 n + 3.
template <class C>
__device__ __forceinline__ uint32_t drawn_by(const C& c, int word, uint32_t slot_query) {
  const uint32_t l = c.lane(), lane = l / 16 * 16 + 4 * slot_query + l % 4;
  return __shfl_sync(0xffffffffU, c.drawn[word], static_cast<int>(lane)) << (3 - l / 4 % 4);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
