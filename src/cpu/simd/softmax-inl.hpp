// The online softmax of one tile (Milakov and Gimelshein: Online normalizer calculation for
// softmax, 2018), in powers of two: scores are used as c * s, and c includes log2(e).
#pragma once

#include <algorithm>
#include <cmath>

#include "cpu/simd/pack-inl.hpp"
#include "cpu/simd/scores-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline float exp2_of_scalar(float x) { return hn::GetLane(exp2_of(hn::Set(kF, x))); }

HWY_INLINE float largest_of(const float* s, const Columns& columns) {
  VecF even = hn::Set(kF, kRemoved);
  VecF odd = even;
  int64_t c = columns.first;
  for (; c + kPanel <= columns.last; c += kPanel) {
    even = hn::Max(even, hn::Load(kF, s + c));
    odd = hn::Max(odd, hn::Load(kF, s + c + kLanes));
  }
  if (c < columns.last) even = hn::Max(even, hn::Load(kF, s + c));
  return hn::GetLane(hn::MaxOfLanes(kF, hn::Max(even, odd)));
}

// Stores the probabilities of a row over its scores, as fp32 or as bf16 (half of the space).
HWY_INLINE void store_probabilities(VecF p, int64_t column, float* s) {
#if defined(FLASHCORE_SIMD_BF16)
  _mm256_store_si256(reinterpret_cast<__m256i*>(s + column / 2),
                     (__m256i)_mm512_cvtneps_pbh(p.raw));
#else
  hn::Store(p, kF, s + column);
#endif
}

inline float load_probability(bool narrow, const float* s, int64_t column) {
  if (narrow) {
    const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(s)[column]) << 16;
    return std::bit_cast<float>(bits);
  }
  return s[column];
}

// Returns whether the probabilities of a job are stored as bf16.
inline bool is_narrow(const TileJob& job) { return kPairs && !job.direct; }

// s = 2^(c * s - largest); returns the sum. With kNarrow, s gets the form that the micro-kernel reads.
template <bool kNarrow>
HWY_INLINE float exponentiate(float* s, const Columns& columns, float c, float largest) {
  const VecF factor = hn::Set(kF, c);
  const VecF minus = hn::Set(kF, -largest);
  VecF even = hn::Zero(kF);
  VecF odd = hn::Zero(kF);
  const auto step = [&](int64_t column) HWY_ATTR {
    const VecF p = exp2_of(hn::MulAdd(hn::Load(kF, s + column), factor, minus));
    if constexpr (kNarrow) {
      store_probabilities(p, column, s);
    } else {
      hn::Store(p, kF, s + column);
    }
    return p;
  };
  int64_t column = columns.first;
  for (; column + kPanel <= columns.last; column += kPanel) {
    even = hn::Add(even, step(column));
    odd = hn::Add(odd, step(column + kLanes));
  }
  if (column < columns.last) even = hn::Add(even, step(column));
  return hn::GetLane(hn::SumOfLanes(kF, hn::Add(even, odd)));
}

// Zeroes the pairs that dropout drops, a panel of keys at a time: one 64-bit lane draws the words
// of four keys (problem/philox.hpp).
inline void drop(const TileJob& job, int64_t head, int64_t query, const Columns& columns,
                 float* s) {
  const hn::Repartition<uint64_t, F> wide;
  constexpr int64_t kGroups = kLanes / 2;
  using V = hn::Vec<decltype(wide)>;
  const uint64_t threshold = dropout_threshold(job.problem->dropout_p);
  const V low = hn::Set(wide, uint64_t{0xFFFFFFFF});
  const auto set = [&](uint64_t value) HWY_ATTR { return hn::Set(wide, value & 0xFFFFFFFF); };
  const auto product = [&](V a, uint32_t b)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(kU, a), hn::Set(kU, b)); };
  for (int64_t c = columns.first; c < columns.last; c += kPanel) {
    HWY_ALIGN uint64_t groups[kGroups];
    for (int64_t g = 0; g < kGroups; ++g) {
      groups[g] = static_cast<uint64_t>((columns.block + c) / 4 + g) & 0xFFFFFFFF;
    }
    V c0 = hn::Load(wide, groups);
    V c1 = set(static_cast<uint64_t>(query));
    V c2 = set(static_cast<uint64_t>(head));
    V c3 = set(static_cast<uint64_t>(job.batch));
    PhiloxKey key = job.dropout_key;
    for (int round = 0; round < 10; ++round) {
      const V first = product(c0, 0xD2511F53);
      const V second = product(c2, 0xCD9E8D57);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(second), c1), set(key[0]));
      c1 = hn::And(second, low);
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(first), c3), set(key[1]));
      c3 = hn::And(first, low);
      key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    HWY_ALIGN uint64_t words[4][kGroups];
    hn::Store(c0, wide, words[0]);
    hn::Store(c1, wide, words[1]);
    hn::Store(c2, wide, words[2]);
    hn::Store(c3, wide, words[3]);
    const int64_t last = std::min(columns.last - c, kPanel);
    for (int64_t i = 0; i < last; ++i) {
      if (words[i % 4][i / 4] < threshold) s[c + i] = 0;
    }
  }
}

// The reference of a row's exponents: c times its largest score, rounded to fp32 if the rounding
// error is a small fraction of 1. For larger scores it is not rounded: half a unit in their last
// place can exceed the whole exponent range of fp32.
inline constexpr float kLargestRounded = 0x1p20f;

inline double reference_of(float largest, float c) {
  const float rounded = largest * c;
  return std::abs(rounded) <= kLargestRounded ? rounded : static_cast<double>(largest) * c;
}

HWY_INLINE void subtract(float largest, const Columns& columns, float* s) {
  const VecF minus = hn::Set(kF, largest);
  for (int64_t i = columns.first; i < columns.last; i += kLanes) {
    hn::Store(hn::Sub(hn::Load(kF, s + i), minus), kF, s + i);
  }
}

// Turns one row of scores (masked; times c they are powers of two) into probabilities. Returns the
// factor for the row's older sums, as a power of two.
HWY_INLINE float softmax_row(const TileJob& job, int64_t head, int64_t query, float c,
                             const Columns& columns, float* s, float& largest, float& sum) {
  const double before = reference_of(largest, c);
  largest = std::max(largest, largest_of(s, columns));
  // If nothing has been seen yet, any finite number works.
  float rounded = largest == kRemoved ? 0.0f : largest * c;
  double reference = rounded;
  if (!(std::abs(rounded) <= kLargestRounded)) {  // then subtract the largest score itself
    subtract(largest, columns, s);
    reference = reference_of(largest, c);
    rounded = 0;
  }
  if (job.problem->dropout_p > 0) {
    sum = exponentiate<false>(s, columns, c, rounded);
    drop(job, head, query, columns, s);
    if (is_narrow(job)) {
      for (int64_t i = columns.first; i < columns.last; i += kLanes) {
        store_probabilities(hn::Load(kF, s + i), i, s);
      }
    }
  } else if (is_narrow(job)) {
    sum = exponentiate<true>(s, columns, c, rounded);
  } else {
    sum = exponentiate<false>(s, columns, c, rounded);
  }
  return static_cast<float>(before - reference);
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
