// Probabilities and their gradients, row by row: P = exp(S - LSE), dS = P (m dP - delta), with the
// scores of the forward pass, and m the factor of dropout.
#pragma once

#include <algorithm>
#include <cmath>

#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline float row_dot(const float* a, const float* b, int64_t width) {
  VecF sum = hn::Zero(kF);
  for (int64_t c = 0; c < width; c += kLanes) {
    sum = hn::MulAdd(hn::LoadU(kF, a + c), hn::LoadU(kF, b + c), sum);
  }
  return hn::GetLane(hn::SumOfLanes(kF, sum));
}

inline void add_row(float factor, const float* from, int64_t width, float* to) {
  const VecF f = hn::Set(kF, factor);
  for (int64_t c = 0; c < width; c += kLanes) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(kF, from + c), hn::LoadU(kF, to + c)), kF, to + c);
  }
}

// The inputs and outputs of one row of a block.
struct GradientRow {
  int64_t head = 0;
  int64_t query = 0;
  float lse = 0;  // infinity: the row sees no key
  float delta = 0;
  float* s = nullptr;   // products, then scores; kRemoved if the pair is masked
  float* dp = nullptr;  // dO . V, then dS, before the softcap's derivative
  float* p = nullptr;   // P m, the weights of dV's sum
  float* ds = nullptr;  // the weights of dQ's and dK's sums, before the scale
};

// 1 - tanh^2 of the softcap, computed from products.
inline void softcap_slopes(const ForwardProblem& p, float product, const Columns& columns,
                           const float* s, float* slopes) {
  const VecF factor = hn::Set(kF, product * (1.0f / p.softcap));
  const VecF one = hn::Set(kF, 1.0f);
  for (int64_t c = columns.first; c < columns.last; c += kLanes) {
    const VecF t = tanh_of(hn::Mul(hn::Load(kF, s + c), factor));
    hn::Store(hn::Mul(hn::Sub(one, t), hn::Add(one, t)), kF, slopes + c);
  }
}

// Masks the scores and fills in the row. Returns the sum of dS times the distance from the diagonal
// if the gradient of slopes is requested.
inline double gradient_row(const BackwardJob& job, const GradientRow& row, const Columns& columns,
                           bool banded) {
  const ForwardProblem& p = job.problem->forward;
  const RowScale scale = row_scale(job.tile, row.head);
  HWY_ALIGN float slopes[kLargestBlockKv];
  HWY_ALIGN float kept[kLargestBlockKv];
  if (p.softcap > 0) softcap_slopes(p, scale.product, columns, row.s, slopes);
  if (scale.transforms) {
    transform_row(job.tile, row.head, row.query, scale.product, columns, row.s);
  }
  if (banded) remove_outside(visible_keys(job.tile.sequence, p.band, row.query), columns, row.s);
  if (row.lse == std::numeric_limits<float>::infinity()) {
    std::fill(row.s + columns.first, row.s + columns.last, kRemoved);
  }
  if (p.dropout_p > 0) {
    std::fill(kept + columns.first, kept + columns.last, dropout_rescale(p.dropout_p));
    drop(job.tile, row.head, row.query, columns, kept);
  }
  constexpr float kLog2E = 1.44269504f;
  const Alibi alibi = alibi_of(job.tile, row.head, row.query);
  const VecF score = hn::Set(kF, scale.score);
  const VecF lse = hn::Set(kF, static_cast<float>(static_cast<double>(row.lse) - alibi.shift));
  const VecF log2e = hn::Set(kF, kLog2E);
  const VecF delta = hn::Set(kF, row.delta);
  const VecF removed = hn::Set(kF, kRemoved);
  for (int64_t c = columns.first; c < columns.last; c += kLanes) {
    const VecF s = hn::Load(kF, row.s + c);
    const auto gone = hn::Eq(s, removed);
    VecF weight = exp2_of(hn::Mul(hn::MulSub(s, score, lse), log2e));
    VecF dp = hn::Load(kF, row.dp + c);
    VecF given = weight;
    if (p.dropout_p > 0) {
      const VecF m = hn::Load(kF, kept + c);
      given = hn::Mul(weight, m);
      dp = hn::Mul(dp, m);
    }
    const VecF ds = hn::IfThenZeroElse(gone, hn::Mul(weight, hn::Sub(dp, delta)));
    hn::Store(hn::IfThenZeroElse(gone, given), kF, row.p + c);
    hn::Store(ds, kF, row.dp + c);
    const VecF slope = p.softcap > 0 ? hn::Load(kF, slopes + c) : hn::Set(kF, 1.0f);
    hn::Store(p.softcap > 0 ? hn::IfThenZeroElse(gone, hn::Mul(ds, slope)) : ds, kF, row.ds + c);
  }
  if (job.d_slopes == nullptr) return 0;
  double sum = 0;
  const int64_t diagonal = row.query + job.tile.sequence.offset;
  for (int64_t c = columns.first; c < columns.keys; ++c) {
    sum += static_cast<double>(row.dp[c]) *
           static_cast<double>(std::abs(diagonal - columns.block - c));
  }
  return sum;
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
