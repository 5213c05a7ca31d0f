// Element types: their values as double, and rounding to nearest even into them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// A binary floating-point format of at most 16 bits.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false: all-ones exponents are numbers, only all-ones bits are NaN

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
};

inline constexpr FloatFormat kF16{5, 10, true};
inline constexpr FloatFormat kBF16{8, 7, true};
inline constexpr FloatFormat kF8E4M3{4, 3, false};
inline constexpr FloatFormat kF8E5M2{5, 2, true};

template <FloatFormat F>
double decode(uint16_t bits) {
  const int exponent = (bits >> F.mantissa_bits) & ((1 << F.exponent_bits) - 1);
  const int mantissa = bits & ((1 << F.mantissa_bits) - 1);
  const int top = (1 << F.exponent_bits) - 1;
  const bool negative = (bits >> F.sign_shift()) & 1;
  double value = 0;
  if (F.has_infinity && exponent == top) {
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (!F.has_infinity && exponent == top && mantissa == (1 << F.mantissa_bits) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - F.bias() - F.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << F.mantissa_bits), exponent - F.bias() - F.mantissa_bits);
  }
  return negative ? -value : value;
}

// Rounds to nearest even. Past the largest value: infinity for formats of more than 8 bits that
// have one; fp8 saturates, like the GPU's conversions, and keeps NaN.
template <FloatFormat F>
uint16_t encode(double value) {
  const bool saturates = F.sign_shift() == 7;
  const auto sign = static_cast<uint16_t>((std::signbit(value) ? 1 : 0) << F.sign_shift());
  const int top = (1 << F.exponent_bits) - 1;
  const int ones = (1 << F.mantissa_bits) - 1;
  if (std::isnan(value)) {
    const int quiet = F.has_infinity ? 1 << (F.mantissa_bits - 1) : ones;
    return static_cast<uint16_t>(sign | (top << F.mantissa_bits) | (saturates ? ones : quiet));
  }
  const int largest = F.has_infinity ? ((top - 1) << F.mantissa_bits) | ones
                                     : (top << F.mantissa_bits) | (ones - 1);
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  int bits = largest + 1;
  if (!std::isinf(magnitude)) {
    const int exponent = std::max(std::ilogb(magnitude), 1 - F.bias());
    const double steps = std::nearbyint(std::ldexp(magnitude, F.mantissa_bits - exponent));
    // The bit patterns of a sign count up through all exponents, so a carry needs no care.
    const double first = std::ldexp(exponent + F.bias() - 1, F.mantissa_bits);
    bits = first + steps > largest ? largest + 1 : static_cast<int>(first + steps);
  }
  if (bits > largest) bits = saturates ? largest : top << F.mantissa_bits;
  return static_cast<uint16_t>(sign | bits);
}

// The element at `index` of an array of `dtype`; integers past 2^53 are rounded.
inline double load_element(DType dtype, const void* data, int64_t index) {
  const auto* bytes =
      static_cast<const std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
  const auto as = [bytes]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::f64:
      return as(double{});
    case DType::f32:
      return static_cast<double>(as(float{}));
    case DType::f16:
      return decode<kF16>(as(uint16_t{}));
    case DType::bf16:
      return decode<kBF16>(as(uint16_t{}));
    case DType::f8e4m3:
      return decode<kF8E4M3>(as(uint8_t{}));
    case DType::f8e5m2:
      return decode<kF8E5M2>(as(uint8_t{}));
    case DType::boolean:
      return as(uint8_t{}) != 0 ? 1 : 0;
    case DType::i32:
      return as(int32_t{});
    case DType::i64:
      return static_cast<double>(as(int64_t{}));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Rounds to nearest even into `dtype`; integers and booleans must be exactly representable.
inline void store_element(DType dtype, void* data, int64_t index, double value) {
  auto* bytes = static_cast<std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
  const auto put = [bytes](auto stored) { std::memcpy(bytes, &stored, sizeof(stored)); };
  switch (dtype) {
    case DType::f64:
      return put(value);
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f16:
      return put(encode<kF16>(value));
    case DType::bf16:
      return put(encode<kBF16>(value));
    case DType::f8e4m3:
      return put(static_cast<uint8_t>(encode<kF8E4M3>(value)));
    case DType::f8e5m2:
      return put(static_cast<uint8_t>(encode<kF8E5M2>(value)));
    case DType::boolean:
      return put(static_cast<uint8_t>(value != 0));
    case DType::i32:
      return put(static_cast<int32_t>(value));
    case DType::i64:
      return put(static_cast<int64_t>(value));
  }
}

}  // namespace flashcore
