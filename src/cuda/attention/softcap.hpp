// softcap * tanh(scale * score / softcap), in units of log2, for every cap and scale of fp32.
//
// The error of tanh as 1 - 2 / (1 + e^2x) is 1e-7 of the cap, which is too much for a score
// far below the cap. There, tanh(x) is x t(x^2) with a polynomial t: its error is 1e-7 of the
// score for any cap, and it is the identity for distant caps. Polynomials are interpolated at
// Chebyshev points. constexpr: shared by kernels (softcap.cuh) and host tests.
#pragma once

#include <cstddef>
#include <limits>
#include <numbers>

namespace flashcore::cuda::attention {

// Parameters of a kernel. All are finite.
struct SoftcapParams {
  float rate;        // tanh's argument per unit of score; negative if the scale is
  float scale_log2;  // factor of scores far below the cap
  float cap_log2;    // 0: no cap
};

// Returns t for x up to kCapNear, with relative error 1.4e-8.
inline constexpr float kCapNear = 0.5F;
constexpr float tanh_ratio(float square) {
  constexpr float kTerms[] = {0.9999999867573895F, -0.33333067944422295F, 0.13324750504787197F,
                              -0.05298423882829622F, 0.017131344430831006F};
  float t = kTerms[4];
  for (int i = 3; i >= 0; --i) t = t * square + kTerms[i];
  return t;
}

namespace softcap {

inline constexpr double kLargest = std::numeric_limits<float>::max();

// Returns the nearest finite fp32 number.
constexpr float finite(double x) {
  return static_cast<float>(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
}

}  // namespace softcap

// softcap > 0. A cap above fp32's range in units of log2, 2.3e38, is clamped to it.
constexpr SoftcapParams softcap_params(double scale, double softcap) {
  const double cap = softcap * std::numbers::log2e > softcap::kLargest
                         ? softcap::kLargest / std::numbers::log2e
                         : softcap;
  return {softcap::finite(scale / cap), softcap::finite(scale * std::numbers::log2e),
          softcap::finite(cap * std::numbers::log2e)};
}

// p.cap_log2 * tanh(score * p.rate), off by 4e-7 of itself at most, for p.cap_log2 > 0. exp2 and
// reciprocal: 2^x and 1 / x to 2e-7, infinity or 0 where that is past fp32.
template <class Exp2, class Reciprocal>
constexpr float capped_log2(float score, const SoftcapParams& p, Exp2 exp2, Reciprocal reciprocal) {
  constexpr float kTwiceLog2E = 2 * std::numbers::log2e_v<float>;
  const float x = score * p.rate;
  const float near = score * p.scale_log2 * tanh_ratio(x * x);
  const float far = p.cap_log2 * (1 - 2 * reciprocal(1 + exp2(x * kTwiceLog2E)));
  return x <= kCapNear && x >= -kCapNear ? near : far;  // a NaN stays one
}

// An approximation without a special function, for main loops: a score
// times a polynomial in its square, terms[0] + terms[1] * square + ...,
// valid while the fourth powers of a lane's scores sum to at most `fourth`.
struct NearCap {
  float terms[4];
  float score;   // the largest
  float fourth;  // its fourth power; 0: do not use the polynomial
};

// Ordinary scores reach a cap of up to 100: x up to 0.7, with error 7e-6 of the score. Above it,
// x up to 0.35, with error 4e-8: scores may be so large that an error of 7e-6 changes weights.
// If powers of the rate leave fp32's range, the identity, up to 3e-4. Past 512, fp32's rounding
// alone changes weights: equal keys must use one formula, so the polynomial ends there.
constexpr NearCap near_cap(double scale, double softcap) {
  struct Range {
    double near, terms[4];
  };
  constexpr Range kWide{
      0.7, {0.999993199929687, -0.33288649120204267, 0.12862074673686597, -0.037261644470749984}};
  constexpr Range kNarrow{
      0.35, {0.9999999650994779, -0.33332420231784343, 0.13295751554663188, -0.04895563714162782}};
  constexpr Range kIdentity{3e-4, {1, 0, 0, 0}};
  constexpr double kWideCap = 100, kLargestScore = 512,
                   kSmallest = std::numeric_limits<float>::min();
  const double rate = scale / softcap, square = rate * rate, factor = scale * std::numbers::log2e;
  const double last = (factor < 0 ? -factor : factor) * square * square * square / 32;
  const Range& range = last < kSmallest ? kIdentity : softcap <= kWideCap ? kWide : kNarrow;
  NearCap line{};
  double power = factor;
  for (std::size_t i = 0; i < 4; ++i, power *= square) {
    const double term = power * range.terms[i];
    if (!(term <= softcap::kLargest && term >= -softcap::kLargest)) return {};
    line.terms[i] = static_cast<float>(term);
  }
  const double by_cap = range.near / (rate < 0 ? -rate : rate);
  const double by_size = kLargestScore / (scale < 0 ? -scale : scale);
  const double near = by_size < by_cap ? by_size : by_cap;
  // A score whose fourth power overflows is not near: infinity exceeds the largest number.
  line.score = softcap::finite(near);
  line.fourth = softcap::finite(near * near * near * near);
  return line;
}

}  // namespace flashcore::cuda::attention
