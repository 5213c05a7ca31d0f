// Element types: every code round-trips, and every double rounds to the nearest code, ties to even.
//
// The oracle is independent of the implementation: it puts the values of all codes, from other
// formulas, into a sorted table and looks up the nearest one.
#include "problem/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"

namespace flashcore {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values of codes by separate formulas: bf16 is the upper half of a float; f16 is assembled as a
// float; e5m2 is the upper half of an f16; e4m3 counts in units of 2^-9.
double value_of_bf16(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }

double value_of_f16(uint16_t code) {
  const uint32_t sign = uint32_t{code} >> 15 << 31;
  const uint32_t exponent = (uint32_t{code} >> 10) & 31;
  const uint32_t mantissa = code & 1023u;
  if (exponent == 0) {
    const auto units = static_cast<double>(mantissa) * 0x1p-24;
    return sign != 0 ? -units : units;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

double value_of_f8e5m2(uint16_t code) { return value_of_f16(static_cast<uint16_t>(code << 8)); }

double value_of_f8e4m3(uint16_t code) {
  const int low = code & 127;
  if (low == 127) return kNaN;
  double units = low % 8;
  if (low >= 8) {
    units += 8;
    for (int e = low / 8; e > 1; --e) units *= 2;
  }
  return (code & 128) != 0 ? -units / 512 : units / 512;
}

struct Format {
  DType dtype;
  int codes;
  double (*value_of)(uint16_t);
  double largest;
  bool saturates;

  int sign_bit() const { return codes / 2; }
};

const Format kFormats[] = {
    {DType::f16, 65536, value_of_f16, 65504, false},
    {DType::bf16, 65536, value_of_bf16, 0x1.FEp127, false},
    {DType::f8e4m3, 256, value_of_f8e4m3, 448, true},
    {DType::f8e5m2, 256, value_of_f8e5m2, 57344, true},
};

class SmallFloat : public testing::TestWithParam<Format> {
 protected:
  const Format& format() const { return GetParam(); }

  uint16_t encoded(double value) const {
    alignas(8) unsigned char bytes[8] = {};
    store_element(format().dtype, bytes, 0, value);
    return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
  }

  double decoded(int code) const {
    alignas(8) const unsigned char bytes[8] = {static_cast<unsigned char>(code & 255),
                                               static_cast<unsigned char>(code >> 8)};
    return load_element(format().dtype, bytes, 0);
  }

  // The positive finite values, in the order of their codes: the oracle's table.
  std::vector<double> finite_values() const {
    std::vector<double> values;
    for (int code = 0; code < format().sign_bit(); ++code) {
      const double value = format().value_of(static_cast<uint16_t>(code));
      if (std::isfinite(value)) values.push_back(value);
    }
    return values;
  }

  // The code nearest to `value`, which is not NaN; of two equally near ones, the even one.
  int nearest(const std::vector<double>& values, double value) const {
    const double magnitude = std::abs(value);
    const int sign = std::signbit(value) ? format().sign_bit() : 0;
    const auto last = static_cast<int>(values.size()) - 1;
    const double largest = values.back();
    // The value after the largest: halfway there, rounding (to the even code) leaves the format.
    const double limit = largest + (largest - values[static_cast<size_t>(last) - 1]) / 2;
    if (magnitude >= limit) return sign + (format().saturates ? last : last + 1);
    if (magnitude >= largest) return sign + last;
    const auto above = static_cast<int>(std::upper_bound(values.begin(), values.end(), magnitude) -
                                        values.begin());
    const double low = values[static_cast<size_t>(above) - 1];
    const double high = values[static_cast<size_t>(above)];
    const double from_low = magnitude - low, to_high = high - magnitude;  // exact: see below
    if (from_low < to_high) return sign + above - 1;
    if (from_low > to_high) return sign + above;
    return sign + (above % 2 == 0 ? above : above - 1);
  }
};

TEST_P(SmallFloat, DecodesEveryCode) {
  for (int code = 0; code < format().codes; ++code) {
    const double wanted = format().value_of(static_cast<uint16_t>(code));
    const double actual = decoded(code);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(actual)) << code;
    } else {
      ASSERT_EQ(actual, wanted) << code;
      ASSERT_EQ(std::signbit(actual), std::signbit(wanted)) << code;
    }
  }
}

TEST_P(SmallFloat, EveryCodeRoundTrips) {
  for (int code = 0; code < format().codes; ++code) {
    const double value = decoded(code);
    const int again = encoded(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decoded(again))) << code;
    } else if (std::isinf(value) && format().saturates) {
      ASSERT_EQ(decoded(again), std::copysign(format().largest, value)) << code;
    } else {
      ASSERT_EQ(again, code);
    }
  }
}

TEST_P(SmallFloat, LargestIsWhatTheFormatSays) {
  EXPECT_EQ(finite_values().back(), format().largest);
}

TEST_P(SmallFloat, RoundsToNearestEven) {
  const std::vector<double> values = finite_values();
  const auto check = [&](double value) {
    for (const double v : {value, -value}) {
      ASSERT_EQ(encoded(v), nearest(values, v)) << std::hexfloat << v;
    }
  };
  // Every value, every midpoint (exact in double: both have few bits), and their neighbours.
  for (size_t i = 0; i < values.size(); ++i) {
    const double next = i + 1 < values.size() ? values[i + 1] : 2 * values[i] - values[i - 1];
    const double middle = (values[i] + next) / 2;
    for (const double v : {values[i], middle}) {
      check(v);
      check(std::nextafter(v, 0.0));
      check(std::nextafter(v, kInf));
    }
  }
  check(std::numeric_limits<double>::denorm_min());
  check(std::numeric_limits<double>::max());
  bench::Random random(7);
  for (int n = 0; n < 200000; ++n) {
    check(std::ldexp(1 + random.uniform(), static_cast<int>(random.integer(-160, 140))));
    check(random.normal());
  }
}

TEST_P(SmallFloat, InfinityAndNaN) {
  for (const double sign : {1.0, -1.0}) {
    const double decoded_infinity = decoded(encoded(sign * kInf));
    EXPECT_EQ(decoded_infinity, sign * (format().saturates ? format().largest : kInf));
    EXPECT_TRUE(std::isnan(decoded(encoded(std::copysign(kNaN, sign)))));
  }
}

TEST_P(SmallFloat, KeepsTheSignOfZero) {
  EXPECT_EQ(encoded(0.0), 0);
  EXPECT_EQ(encoded(-0.0), format().sign_bit());
  EXPECT_EQ(encoded(-1e-300), format().sign_bit());
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloat, testing::ValuesIn(kFormats),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param.dtype));
                         });

TEST(Elements, NativeTypesAreStoredAsTheyAre) {
  double f64 = 0;
  store_element(DType::f64, &f64, 0, 0x1.123456789ABCDp-3);
  EXPECT_EQ(load_element(DType::f64, &f64, 0), 0x1.123456789ABCDp-3);
  float f32[2] = {};
  store_element(DType::f32, f32, 1, 1.0 + 0x1p-24);  // halfway: to the even 1
  EXPECT_EQ(f32[1], 1.0f);
  store_element(DType::f32, f32, 1, 1.0 + 0x3p-24);
  EXPECT_EQ(load_element(DType::f32, f32, 1), 1.0 + 0x1p-22);
  EXPECT_EQ(f32[0], 0.0f);
  int32_t i32 = 0;
  store_element(DType::i32, &i32, 0, -7.0);
  EXPECT_EQ(load_element(DType::i32, &i32, 0), -7.0);
}

TEST(Elements, AnyByteButZeroIsTrue) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto stored = static_cast<uint8_t>(byte);
    EXPECT_EQ(load_element(DType::boolean, &stored, 0), byte == 0 ? 0.0 : 1.0);
  }
}

TEST(Elements, NeedNoAlignmentAndTakeNegativeIndices) {
  alignas(8) unsigned char bytes[24] = {};
  store_element(DType::f32, bytes + 9, 1, 2.5);
  EXPECT_EQ(load_element(DType::f32, bytes + 17, -1), 2.5);
}

TEST(Names, RoundTripAndSizes) {
  const std::pair<DType, size_t> sizes[] = {
      {DType::f32, 4},    {DType::f16, 2},     {DType::bf16, 2}, {DType::f8e4m3, 1},
      {DType::f8e5m2, 1}, {DType::boolean, 1}, {DType::i32, 4},  {DType::f64, 8}};
  for (const auto& [dtype, size] : sizes) {
    EXPECT_EQ(size_of(dtype), size);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_string("f128").has_value());
  EXPECT_FALSE(dtype_from_string("").has_value());
  EXPECT_EQ(to_string(static_cast<DType>(99)), "unknown");
}

}  // namespace
}  // namespace flashcore
