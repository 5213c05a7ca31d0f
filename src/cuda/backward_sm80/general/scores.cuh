// Turns the products of a tile into P and dS, pair by pair.
//
//   score = scale S, capped, with bias and ALiBi     p = e^(score - LSE)     docs/semantics.md
//   S becomes m p                                    m: dropout's factor
//   T becomes ds softcap'                            ds = p (m T - delta)
//
// A removed pair has p = ds = 0, by selection: the values of S and T do not matter.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/backward_sm80/general/shape.cuh"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::backward_sm80::general {

// A lane's position in a tile: its rows are row and row + 8 of the owner, its columns of product n are
// column + 8 n and the next. Rows and columns are queries and keys of the sequence, or the reverse.
struct LanePlace {
  int batch, head;  // of queries
  int row, column;
};

// The statistics of a query row: LSE and delta.
struct RowStats {
  float lse, delta;
};

// Tells which elements of a lane are kept, one bit each: bit 4 n + e.
template <int kProducts>
struct KeptBits {
  uint32_t words[(kProducts + 7) / 8];

  __device__ __forceinline__ bool operator()(int n, int e) const {
    return (words[n / 8] >> (n % 8 * 4 + e) & 1U) != 0;
  }
};

// One Philox block serves four keys of a query. If rows are queries, a lane needs half of a
// block for each of its rows, and its neighbour the other half: the even lane draws for the
// first row, the odd one for the second, and they exchange. If rows are keys, four lanes of
// neighbouring rows need one word each from the blocks of two columns and two rows: each
// draws one block, and in round r a lane passes the word of the lane r positions further.
template <bool kOwnsQueries, int kProducts>
__device__ __forceinline__ KeptBits<kProducts> draw(const Params& p, PhiloxKey key,
                                                    const LanePlace& lane) {
  const auto batch = static_cast<uint32_t>(lane.batch), head = static_cast<uint32_t>(lane.head);
  const auto row = static_cast<uint32_t>(lane.row), column = static_cast<uint32_t>(lane.column);
  KeptBits<kProducts> kept{};
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
    uint32_t words[4];
    if constexpr (kOwnsQueries) {
      const bool odd = (column & 2) != 0;
      const PhiloxBlock mine =
          dropout_words(key, batch, head, row + (odd ? 8 : 0), column / 4 + 2U * n);
      const uint32_t got0 = __shfl_xor_sync(0xffffffffU, odd ? mine[0] : mine[2], 1);
      const uint32_t got1 = __shfl_xor_sync(0xffffffffU, odd ? mine[1] : mine[3], 1);
      words[0] = odd ? got0 : mine[0];
      words[1] = odd ? got1 : mine[1];
      words[2] = odd ? mine[2] : got0;
      words[3] = odd ? mine[3] : got1;
    } else {
      // Lane 4 g + t has keys g and g + 8; rows g / 4 * 4 ... + 3 share a block.
      const uint32_t place = row % 4;  // in the four lanes; also selects the element to draw for
      const PhiloxBlock mine = dropout_words(key, batch, head, column + 8U * n + (place & 1),
                                             row / 4 + 2 * (place >> 1));
      const auto self = static_cast<int>(threadIdx.x % 32);
#pragma unroll
      for (uint32_t round = 0; round < 4; ++round) {
        const uint32_t to = (place + round) % 4, from = (place + 4 - round) % 4;
        const uint32_t low = (to & 1) != 0 ? mine[1] : mine[0];
        const uint32_t high = (to & 1) != 0 ? mine[3] : mine[2];
        const int source = self + 4 * (static_cast<int>(from) - static_cast<int>(place));
        const uint32_t word = __shfl_sync(0xffffffffU, (to & 2) != 0 ? high : low, source);
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) words[e] = from == e ? word : words[e];
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool keeps = words[e] >= p.dropout_threshold;
      kept.words[n / 8] |= static_cast<uint32_t>(keeps) << (n % 8 * 4 + e);
    }
  }
  return kept;
}

__device__ __forceinline__ PhiloxKey dropout_key_of(const Params& p) {
  if (p.dropout_state == nullptr) return p.dropout_key;
  return dropout_key(static_cast<uint64_t>(__ldg(p.dropout_state)),
                     static_cast<uint64_t>(__ldg(p.dropout_state + p.dropout_state_step)));
}

// tanh, accurate to the last bit or two.
__device__ __forceinline__ float tanh_of(float x) {
  return fabsf(x) > attention::kCapNear ? tanhf(x) : x * attention::tanh_ratio(x * x);
}

// The terms of a score, for one sequence and head.
struct ScoreTerms {
  int64_t bias, mask;  // element indices of query 0 and key 0
  float alibi_step;    // term per key of distance from the diagonal
  int64_t offset;      // of the diagonal
  int last_query, last_key;
};

__device__ __forceinline__ ScoreTerms score_terms(const Params& p, const attention::Entry& entry,
                                                  int batch, int head) {
  ScoreTerms terms{};
  terms.bias = batch * p.bias.batch + head * p.bias.head;
  terms.mask = batch * p.mask.batch + head * p.mask.head;
  if (p.alibi_slopes.data != nullptr) {
    const HeadVector& slopes = p.alibi_slopes;
    terms.alibi_step = -__ldg(slopes.data + batch * slopes.batch + head * slopes.head);
  }
  terms.offset = entry.offset;
  terms.last_query = entry.len_q - 1;
  terms.last_key = entry.len_kv - 1;
  return terms;
}

// Returns the score of a pair before the band, or attention::kNoKey if it is removed. slope: the softcap's.
__device__ __forceinline__ float score_of(const Params& p, const ScoreTerms& terms, float product,
                                          int query, int key, float& slope) {
  // Rows past the lengths read the last one that exists; the result is discarded.
  const int i = min(query, terms.last_query), j = min(key, terms.last_key);
  float score = product * p.softmax_scale;
  slope = 1;
  if (p.cap > 0) {
    const float t = tanh_of(product * p.cap_rate);
    score = p.cap * t;
    slope = (1 - t) * (1 + t);
  }
  // The bias comes last, as one of -inf removes whatever a slope made of the score.
  if (p.alibi_slopes.data != nullptr) {
    const auto distance = static_cast<float>(abs(query + terms.offset - key));
    score = fmaf(terms.alibi_step, distance, score);
  }
  if (p.bias.data != nullptr) {
    const float bias =
        load_element(p.bias.type, p.bias.data, terms.bias + i * p.bias.query + j * p.bias.key);
    score = bias == attention::kNoKey ? attention::kNoKey : score + bias;
  }
  if (p.mask.data != nullptr) {
    const auto* const mask = static_cast<const uint8_t*>(p.mask.data);
    if (__ldg(mask + terms.mask + i * p.mask.query + j * p.mask.key) == 0) {
      score = attention::kNoKey;
    }
  }
  return score;
}

// Rewrites s and t; `kinds`: to 1 for pairs that remain. Only in a `banded` tile does
// visibility depend on a pair's position; if rows are keys, rows from `rows` on see nothing
// there. row_stats(n, e): statistics of the query of element e of product n. visit(n, e, row,
// column, attended, ds): called for every rewritten pair; ds excludes the softcap's slope.
template <bool kOwnsQueries, Features kFeatures, int kProducts, class Stats, class Visit>
__device__ __forceinline__ void weigh(float (&s)[kProducts][4], float (&t)[kProducts][4],
                                      const Params& p, const ScoreTerms& terms, PhiloxKey key,
                                      const LanePlace& lane, const attention::BandLimits& limits,
                                      int rows, bool banded, bool kinds, Stats row_stats,
                                      Visit visit) {
  KeptBits<kProducts> kept{};
  if (kFeatures == Features::all && p.dropout) {
    kept = draw<kOwnsQueries, kProducts>(p, key, lane);
  }
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = lane.row + 8 * slot;
    attention::ColumnRange seen{0, 8 * kProducts};
    if (banded) seen = attention::visible_columns(limits, row, lane.column);
    if (!kOwnsQueries && banded && row >= rows) seen = {0, 0};
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
        const int from_lane = 8 * n + e % 2, column = lane.column + from_lane;
        float slope = 1, score;
        if constexpr (kFeatures == Features::all) {
          score = score_of(p, terms, s[n][e], kOwnsQueries ? row : column,
                           kOwnsQueries ? column : row, slope);
        } else {
          score = s[n][e] * p.softmax_scale;
        }
        const bool outside = banded && (from_lane < seen.begin || from_lane >= seen.end);
        const bool attended = !outside && score != attention::kNoKey;
        const RowStats stats = row_stats(n, e);
        const float weight = ptx::exp2_approx((score - stats.lse) * attention::kLog2E);
        float given = weight, dp = t[n][e];
        if (kFeatures == Features::all && p.dropout) {
          const float m = kept(n, e) ? p.dropout_rescale : 0.0F;
          given *= m;
          dp *= m;
        }
        const float ds = attended ? weight * (dp - stats.delta) : 0.0F;
        s[n][e] = attended ? kinds ? 1.0F : given : 0.0F;
        t[n][e] = attended ? kinds ? 1.0F : ds * slope : 0.0F;
        visit(n, e, row, column, attended, ds);
      }
    }
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
