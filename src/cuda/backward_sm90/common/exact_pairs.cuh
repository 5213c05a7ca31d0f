// A pair's weights with a bias, a mask, ALiBi or dropout, as docs/semantics.md has them: for rows that
// are computed again (exact.cuh).
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/bias_element.cuh"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/pairs.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::backward_sm90 {

// A pair: sequence, query head, query, key.
struct PairPlace {
  int batch, head, query, key;
};

// A weight and the factor that dropout gives it; a removed pair has neither.
struct ExactPair {
  bool removed;
  float weight, factor;
};

constexpr int64_t element_of(const PairMatrix& m, const PairPlace& at) {
  return at.batch * m.batch + at.head * m.head + at.query * m.query + at.key * m.key;
}

__device__ __forceinline__ bool is_kept(const Pairs& pairs, const PairPlace& at) {
  const auto key = static_cast<uint32_t>(at.key);
  const PhiloxBlock words =
      dropout_words(dropout_key_of(pairs), static_cast<uint32_t>(at.batch),
                    static_cast<uint32_t>(at.head), static_cast<uint32_t>(at.query), key / 4);
  const uint32_t place = key % 4;
  const uint32_t low = place % 2 == 0 ? words[0] : words[1],
                 high = place % 2 == 0 ? words[2] : words[3];
  return (place < 2 ? low : high) > pairs.last_dropped;
}

// `rows`: of its sequence; `qk`: the product.
template <class P>
__device__ __forceinline__ ExactPair exact_pair(const P& p, const EntryRows& rows,
                                                const PairPlace& at, float qk) {
  const Pairs& pairs = p.pairs;
  float score = qk * p.scale;
  if (pairs.slopes != nullptr) {
    const float of_head =
        __ldg(pairs.slopes + at.batch * pairs.slopes_batch + at.head * pairs.slopes_head);
    const int64_t distance = at.query + attention::find_entry(p, at.batch).offset - at.key;
    score = fmaf(-of_head, static_cast<float>(distance < 0 ? -distance : distance), score);
  }
  bool removed = false;
  if (pairs.bias.data != nullptr) {
    const float bias = bias_element(pairs, element_of(pairs.bias, at));
    score += bias;
    removed = bias == attention::kNoKey;
  }
  if (pairs.mask.data != nullptr) {
    const auto* const mask = static_cast<const uint8_t*>(pairs.mask.data);
    removed = removed || __ldg(mask + element_of(pairs.mask, at)) == 0;
  }
  const float lse = p.lse[rows.batch * p.lse_batch + at.head * p.lse_head +
                          (int64_t{rows.q_row} + at.query) * p.lse_row];
  // A row whose LSE is infinite has no weights.
  const float weight = lse == -attention::kNoKey
                           ? __int_as_float(0x7fffffff)
                           : ptx::exp2_approx((score - lse) * attention::kLog2E);
  const float factor = pairs.dropout && !is_kept(pairs, at) ? 0 : pairs.rescale;
  return {removed || score == attention::kNoKey, weight, factor};
}

}  // namespace flashcore::cuda::backward_sm90
