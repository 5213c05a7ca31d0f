// The softcap of CUDA kernels, by the functions that they share with the host: right for every cap
// and scale, however far scores are from the cap.
#include "cuda/attention/softcap.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashcore::cuda::attention {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

float exp2_of(float x) { return std::exp2(x); }
float reciprocal_of(float x) { return 1 / x; }

double want(double score, double scale, double cap) {
  return cap * std::tanh(score * scale / cap) * 1.4426950408889634;
}

// Visits caps from 1e-30 to 1e30 with scales, and scores from 1e-12 to 1e3 times the cap.
template <class Visit>
void for_each_score(Visit visit) {
  for (int power = -30; power <= 30; ++power) {
    const double cap = 2.9 * std::pow(10.0, power);
    for (const double scale : {0.125, -0.125, 1.0, 3.7, 1e-4}) {
      for (double x = 1e-12; x < 1e3; x *= 1.37) {
        const double score = x * cap / scale;
        if (std::abs(score) > kLargest || std::abs(score) < 1e-30) continue;
        visit(static_cast<float>(score), scale, cap);
        visit(static_cast<float>(-score), scale, cap);
      }
    }
  }
}

TEST(Softcap, IsRightToTheScoreForEveryCap) {
  double worst = 0;
  for_each_score([&](float score, double scale, double cap) {
    const double right = want(score, scale, cap);
    const double got = capped_log2(score, softcap_params(scale, cap), exp2_of, reciprocal_of);
    const double error = std::abs(got - right) / std::abs(right);
    worst = std::max(worst, error);
    ASSERT_LT(error, 5e-7) << fmt::format("score {}, scale {}, cap {}: {}, wanted {}", score, scale,
                                          cap, got, right);
  });
  EXPECT_GT(worst, 0);
}

TEST(Softcap, MeetsTheEndsOfFp32) {
  for (const double cap : {1e-45, 1e-38, 1.0, 1e38, kLargest}) {
    for (const double scale : {1e-45, 0.125, 1.0, -1.0, kLargest}) {
      const SoftcapParams p = softcap_params(scale, cap);
      ASSERT_TRUE(std::isfinite(p.rate) && std::isfinite(p.scale_log2) && std::isfinite(p.cap_log2))
          << cap << ", " << scale;
      EXPECT_EQ(capped_log2(0, p, exp2_of, reciprocal_of), 0) << cap << ", " << scale;
      EXPECT_TRUE(
          std::isfinite(capped_log2(std::numeric_limits<float>::max(), p, exp2_of, reciprocal_of)));
      EXPECT_TRUE(std::isnan(capped_log2(NAN, p, exp2_of, reciprocal_of)));
    }
  }
  const SoftcapParams p = softcap_params(0.125, 30);
  EXPECT_FLOAT_EQ(capped_log2(INFINITY, p, exp2_of, reciprocal_of), p.cap_log2);
  EXPECT_FLOAT_EQ(capped_log2(-INFINITY, p, exp2_of, reciprocal_of), -p.cap_log2);
}

// As main loops compute it: the fourth power decides, and is infinite or 0 where it must be.
TEST(Softcap, PolynomialIsRightWhereItSaysSo) {
  long near = 0;
  for_each_score([&](float score, double scale, double cap) {
    const NearCap line = near_cap(scale, cap);
    const float square = score * score;
    if (!(square * square <= line.fourth) || line.fourth == 0) return;
    ++near;
    float t = line.terms[3];
    for (int i = 2; i >= 0; --i) t = t * square + line.terms[i];
    const double right = want(score, scale, cap), got = score * t;
    const double allowed = cap <= 100 ? 7.5e-6 : 4e-7;
    ASSERT_LT(std::abs(got - right) / std::abs(right), allowed)
        << fmt::format("score {}, scale {}, cap {}: {}, wanted {}", score, scale, cap, got, right);
  });
  EXPECT_GT(near, 1000);
}

// What the main loop gains by it: caps that scores come near to, and those that they never do.
TEST(Softcap, PolynomialServesEveryLargeCap) {
  for (const double cap : {1.0, 50.0, 1e5, 1e8, 1e15, 1e30}) {
    const NearCap line = near_cap(0.125, cap);
    EXPECT_GT(line.fourth, 0) << cap;
    EXPECT_GE(line.score * 0.125, std::min(511.0, (cap < 1e6 ? 0.34 : 2.9e-4) * cap)) << cap;
    EXPECT_LE(line.score * 0.125, 513) << cap;
  }
  EXPECT_EQ(near_cap(1e30, 1e-30).fourth, 0);
}

}  // namespace
}  // namespace flashcore::cuda::attention
