// Rounding of the narrow formats: against all their values, and against exact arithmetic.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/packed_fma.cuh"
#include "engine/number_formats.hpp"

namespace flashcore::sim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Formats, KnownValues) {
  EXPECT_EQ(f16_of(1), 0x3c00);
  EXPECT_EQ(f16_of(-2), 0xc000);
  EXPECT_EQ(f16_of(65504), 0x7bff);
  EXPECT_EQ(f16_of(65520), 0x7c00);  // halfway to 2^16, which is even
  EXPECT_EQ(f16_of(65519), 0x7bff);
  EXPECT_EQ(f16_of(kInfinity), 0x7c00);
  EXPECT_EQ(f16_of(std::ldexp(1.0F, -24)), 1);
  EXPECT_EQ(f16_of(std::ldexp(1.0F, -25)), 0);  // halfway to 0, which is even
  EXPECT_EQ(f16_of(-0.0F), 0x8000);
  EXPECT_EQ(f16_of(NAN), 0x7fff);
  EXPECT_EQ(e4m3_of(448), 0x7e);
  EXPECT_EQ(e4m3_of(1e9F), 0x7e);
  EXPECT_EQ(e4m3_of(-kInfinity), 0xfe);
  EXPECT_EQ(e4m3_of(NAN), 0x7f);
  EXPECT_EQ(e4m3_of(std::ldexp(1.0F, -9)), 1);
  EXPECT_EQ(bf16_of(1), 0x3f80);
  EXPECT_EQ(bf16_of(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_of(NAN), 0x7fff);
  EXPECT_EQ(tf32_of(1.0F + std::ldexp(1.0F, -11)), 1.0F + std::ldexp(1.0F, -10));
  EXPECT_EQ(tf32_of(-1.0F - std::ldexp(1.0F, -11)), -1.0F - std::ldexp(1.0F, -10));
  EXPECT_TRUE(std::isnan(tf32_of(NAN)));
  // As on an H200 (docs/evidence/recorded-values.json).
  EXPECT_EQ(std::bit_cast<uint32_t>(of_f16(0xfc01)), 0x7fffffffu);
  EXPECT_EQ(std::bit_cast<uint32_t>(tf32_of(std::bit_cast<float>(0xfff42059u))), 0xfff42000u);
}

TEST(Formats, EveryNumberIsItsOwn) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (!std::isnan(of_f16(bits))) {
      EXPECT_EQ(f16_of(of_f16(bits)), bits);
    }
    if (!std::isnan(of_bf16(bits))) {
      EXPECT_EQ(bf16_of(of_bf16(bits)), bits);
    }
  }
  for (uint32_t i = 0; i < 256; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    if (!std::isnan(of_e4m3(bits))) {
      EXPECT_EQ(e4m3_of(of_e4m3(bits)), bits);
    }
  }
}

// Between two neighbours: the nearer one or, in a tie, the one with an even last bit.
template <class Narrow, class Widen>
void expect_nearest(uint32_t bits, Narrow narrow, Widen widen) {
  const double low = widen(bits), high = widen(bits + 1), middle = (low + high) / 2;
  const auto at = [&](double x) { return uint32_t{narrow(static_cast<float>(x))}; };
  EXPECT_EQ(at(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
  EXPECT_EQ(at(std::nextafter(static_cast<float>(middle), 0.0F)), bits) << bits;
  EXPECT_EQ(at(std::nextafter(static_cast<float>(middle), kInfinity)), bits + 1) << bits;
}

TEST(Formats, RoundsToTheNearest) {
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    expect_nearest(i, f16_of, [](uint32_t b) { return of_f16(static_cast<uint16_t>(b)); });
  }
  for (uint32_t i = 0x80; i < 0x7f7f; ++i) {
    expect_nearest(i, bf16_of, [](uint32_t b) { return of_bf16(static_cast<uint16_t>(b)); });
  }
  for (uint32_t i = 0; i < 0x7e; ++i) {
    expect_nearest(i, e4m3_of, [](uint32_t b) { return of_e4m3(static_cast<uint8_t>(b)); });
  }
}

TEST(Formats, E4m3GivesF16Exactly) {
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t pair = cuda::ptx::e4m3x2_to_f16x2(i | (255 - i) << 8);
    const float low = of_f16(static_cast<uint16_t>(pair)), want = of_e4m3(static_cast<uint8_t>(i));
    EXPECT_TRUE(low == want || (std::isnan(low) && std::isnan(want))) << i;
  }
}

// long double represents the sum of a product of two fp16 numbers and a third
// one accurately enough: 64 bits against a spread of at most 2^16 to 2^-48.
TEST(Formats, FusedHalvesRoundOnce) {
  static_assert(std::numeric_limits<long double>::digits >= 64);
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i) {
    const auto draw = [&] {
      return static_cast<uint16_t>(random() % 0x7c00 | (random() & 0x8000));
    };
    const uint16_t a = draw(), b = draw(), c = draw();
    const long double exact =
        static_cast<long double>(of_f16(a)) * of_f16(b) + static_cast<long double>(of_f16(c));
    const auto got = static_cast<uint16_t>(cuda::ptx::fma_f16x2(a, b, c));
    if ((got & 0x7fff) >= 0x7c00) {
      EXPECT_GE(std::fabs(exact), 65520.0L);
      continue;
    }
    // No neighbour is nearer, and an even neighbour is not equally near.
    const long double error = std::fabs(exact - of_f16(got));
    for (const int step : {-1, 1}) {
      const auto other = static_cast<uint16_t>(got + step);
      if ((other & 0x7fff) >= 0x7c00 || ((other ^ got) & 0x8000) != 0) continue;
      const long double there = std::fabs(exact - of_f16(other));
      EXPECT_TRUE(error < there || (error == there && got % 2 == 0)) << a << " " << b << " " << c;
    }
  }
}

TEST(Formats, SpecialFunctions) {
  using namespace cuda::ptx;
  EXPECT_EQ(exp2_approx(3), 8);
  EXPECT_EQ(exp2_approx(-kInfinity), 0);
  EXPECT_EQ(exp2_approx(-127), 0);  // denormal
  EXPECT_TRUE(std::isnan(exp2_approx(NAN)));
  EXPECT_EQ(log2_approx(0), -kInfinity);
  EXPECT_EQ(log2_approx(1e-40F), -kInfinity);
  EXPECT_EQ(reciprocal_approx(0), kInfinity);
  EXPECT_EQ(reciprocal_approx(4), 0.25F);
}

}  // namespace
}  // namespace flashcore::sim
