// Computes masked scores from q.k: scale, softcap, bias, ALiBi, masks, in the order of
// docs/semantics.md. Runs only for rows that use any of them, and only on columns of one tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/simd/convert-inl.hpp"
#include "cpu/simd/math-inl.hpp"
#include "cpu/simd/tile_job.hpp"
#include "problem/tree_mask.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// Columns [first, last) of a block: those that a tile of rows computes. `keys` of them exist.
struct Columns {
  int64_t block = 0;    // key of column 0
  int64_t first = 0;    // a multiple of kPanel
  int64_t last = 0;     // a multiple of kColumnStep
  int64_t keys = 0;     // columns from here on have no key
  bool banded = false;  // some row does not see some column
};

// Factors that turn a tile's values of a row into scores, and into powers of two.
struct RowScale {
  float product = 1;        // q.k to scores: softmax_scale, with the scale of an fp8 Q
  bool transforms = false;  // scores need transform_row(): they are not q.k times a positive number
  float score = 1;          // input of the softmax to scores
  float power = 1;          // input of the softmax to powers of two
};

inline RowScale row_scale(const TileJob& job, int64_t head) {
  constexpr float kLog2E = 1.44269504f;
  const ForwardProblem& p = *job.problem;
  const float q_scale =
      p.q_scale.present ? job.arguments->q_scale[p.q_scale.at(job.batch, head)] : 1.0f;
  RowScale scale;
  scale.product = p.softmax_scale * q_scale;
  scale.power = scale.product * kLog2E;
  scale.transforms = p.softcap > 0 || p.bias.present || p.mask.present || p.tree_mask.present ||
                     p.alibi_slopes.present ||
                     !(scale.power > 0 && scale.power < std::numeric_limits<float>::infinity());
  scale.score = scale.transforms ? 1.0f : scale.product;
  if (scale.transforms) scale.power = kLog2E;
  return scale;
}

// The ALiBi distance is measured from the visible key nearest to the diagonal, not from the
// diagonal. The softmax is the same, and scores far from the diagonal keep their low bits. `shift`,
// the difference, is added to the LSE at the end.
struct Alibi {
  float slope = 0;
  int64_t nearest = 0;
  double shift = 0;
};

inline Alibi alibi_of(const TileJob& job, int64_t head, int64_t query) {
  const ForwardProblem& p = *job.problem;
  Alibi alibi;
  const KeyRange visible = visible_keys(job.sequence, p.band, query);
  if (!p.alibi_slopes.present || visible.empty()) return alibi;
  const int64_t diagonal = query + job.sequence.offset;
  alibi.slope = job.arguments->alibi_slopes[p.alibi_slopes.at(job.batch, head)];
  alibi.nearest = diagonal;
  if (!std::isfinite(alibi.slope)) return alibi;  // no bits to keep
  alibi.nearest = std::clamp(diagonal, visible.begin, visible.end - 1);
  alibi.shift =
      static_cast<double>(alibi.slope) * -static_cast<double>(std::abs(diagonal - alibi.nearest));
  return alibi;
}

// Loads a row of the bias as fp32 into out[first ... keys).
inline void load_bias(const TileJob& job, int64_t head, int64_t query, const Columns& columns,
                      float* out) {
  const ForwardProblem& p = *job.problem;
  const int64_t at = p.bias.at(job.batch, head, query, columns.block);
  if (p.bias.key == 1) {
    load_row(p.bias.dtype, job.arguments->bias, at + columns.first, columns.keys - columns.first,
             1.0f, out + columns.first, columns.last - columns.first);
    return;
  }
  for (int64_t c = columns.first; c < columns.keys; ++c) {
    out[c] =
        static_cast<float>(load_element(p.bias.dtype, job.arguments->bias, at + c * p.bias.key));
  }
}

// Loads a row of the boolean mask into out[first ... keys).
inline void load_mask(const TileJob& job, int64_t head, int64_t query, const Columns& columns,
                      uint8_t* out) {
  const ForwardProblem& p = *job.problem;
  const auto* const in = static_cast<const uint8_t*>(job.arguments->mask) +
                         p.mask.at(job.batch, head, query, columns.block);
  for (int64_t c = columns.first; c < columns.keys; ++c) out[c] = in[c * p.mask.key];
}

// load_mask(), combined with the bits of a tree mask. Returns false if every column is attended;
// `out` is not written then.
inline bool load_masks(const TileJob& job, int64_t head, int64_t query, const Columns& columns,
                       uint8_t* out) {
  const ForwardProblem& p = *job.problem;
  if (p.mask.present) load_mask(job, head, query, columns, out);
  if (!p.tree_mask.present || query >= job.sequence.len_q) return p.mask.present;
  const TreeRow tree(p, job.arguments->tree_mask, job.sequence, job.batch, query);
  const int64_t begin = std::max(columns.first, tree.first() - columns.block);
  if (begin >= columns.keys) return p.mask.present;
  if (!p.mask.present) std::fill(out + columns.first, out + columns.keys, uint8_t{1});
  for (int64_t c = begin; c < columns.keys; ++c) {
    if (!tree.allows(columns.block + c)) out[c] = 0;
  }
  return true;
}

inline void transform_row(const TileJob& job, int64_t head, int64_t query, float scale,
                          const Columns& columns, float* s) {
  const ForwardProblem& p = *job.problem;
  HWY_ALIGN float bias[kLargestBlockKv];
  HWY_ALIGN uint8_t mask[kLargestBlockKv];
  if (p.bias.present) load_bias(job, head, query, columns, bias);
  const bool masked = load_masks(job, head, query, columns, mask);
  const Alibi alibi = alibi_of(job, head, query);

  const hn::Rebind<uint8_t, F> bytes;
  const VecF removed = hn::Set(kF, kRemoved);
  const VecF inverse_cap = hn::Set(kF, p.softcap > 0 ? 1.0f / p.softcap : 0.0f);
  for (int64_t c = columns.first; c < columns.last; c += kLanes) {
    VecF x = hn::Mul(hn::Load(kF, s + c), hn::Set(kF, scale));
    if (p.softcap > 0) {
      x = hn::Mul(hn::Set(kF, p.softcap), tanh_of(hn::Mul(x, inverse_cap)));
    }
    if (p.alibi_slopes.present) {
      const VecF column = hn::ConvertTo(kF, hn::Iota(kI, static_cast<int32_t>(c)));
      const auto nearest = static_cast<float>(alibi.nearest - columns.block);
      const VecF distance = hn::Abs(hn::Sub(hn::Set(kF, nearest), column));
      x = hn::NegMulAdd(hn::Set(kF, alibi.slope), distance, x);
    }
    if (p.bias.present) {
      const VecF b = hn::Load(kF, bias + c);
      x = hn::IfThenElse(hn::Eq(b, removed), removed, hn::Add(x, b));
    }
    if (masked) {
      const VecU attend = hn::PromoteTo(kU, hn::Load(bytes, mask + c));
      x = hn::IfThenElse(hn::RebindMask(kF, hn::Eq(attend, hn::Zero(kU))), removed, x);
    }
    hn::Store(x, kF, s + c);
  }
}

// Removes the columns of keys outside of `visible`.
inline void remove_outside(const KeyRange& visible, const Columns& columns, float* s) {
  const int64_t begin = std::clamp(visible.begin - columns.block, columns.first, columns.last);
  const int64_t end = std::clamp(visible.end - columns.block, begin, columns.last);
  std::fill(s + columns.first, s + begin, kRemoved);
  std::fill(s + end, s + columns.last, kRemoved);
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
