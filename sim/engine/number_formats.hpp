// Narrow floating-point formats and their rounding, equal to the hardware's conversions.
#pragma once

#include <bit>
#include <cstdint>

namespace flashcore::sim {

// A format with 1 sign bit, `exponent_bits` and `fraction_bits`.
struct NumberFormat {
  int exponent_bits, fraction_bits;
  bool has_infinity;  // e4m3 has none: its largest exponent has numbers and one NaN
};
inline constexpr NumberFormat kF16{5, 10, true}, kE4m3{4, 3, false}, kE5m2{5, 2, true};

// Rounds to nearest, ties to even. Beyond the format: infinity or, with `saturate` (and
// for e4m3), the largest finite value. NaN becomes the bits of `nan`, without a sign.
constexpr uint32_t narrow(float x, NumberFormat format, bool saturate, uint32_t nan) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const int width = 1 + format.exponent_bits + format.fraction_bits;
  const uint32_t sign = bits >> 31 << (width - 1);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return nan;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
  const uint32_t largest = format.has_infinity ? infinity - 1 : (1u << (width - 1)) - 2;
  uint32_t rounded = infinity + (1u << format.fraction_bits);  // for fp32's infinity: out of range
  if (magnitude < 0x7f800000u) {
    const int exponent = static_cast<int>(magnitude >> 23) - 127 + bias;  // in the format
    const uint32_t fraction = (magnitude & 0x7fffffu) | (magnitude >> 23 != 0 ? 0x800000u : 0);
    // Subnormal results keep fewer fraction bits.
    const int dropped = 23 - format.fraction_bits + (exponent < 1 ? 1 - exponent : 0);
    if (dropped > 25) return sign;
    const uint32_t kept = fraction >> dropped, rest = fraction & ((1u << dropped) - 1);
    const uint32_t half = 1u << (dropped - 1);
    rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
    // The leading bit of a normal number carries into the exponent field.
    if (exponent > 0) rounded += static_cast<uint32_t>(exponent - 1) << format.fraction_bits;
  }
  if (rounded > largest) {
    rounded = format.has_infinity && !saturate ? infinity : largest;
  }
  return sign | rounded;
}

constexpr uint16_t f16_of(float x) { return static_cast<uint16_t>(narrow(x, kF16, false, 0x7fff)); }
// cvt.rn.satfinite.e4m3, .e5m2: saturate beyond +-448 and +-57344.
constexpr uint8_t e4m3_of(float x) { return static_cast<uint8_t>(narrow(x, kE4m3, true, 0x7f)); }
constexpr uint8_t e5m2_of(float x) { return static_cast<uint8_t>(narrow(x, kE5m2, true, 0x7f)); }

// bf16 is the upper half of fp32.
constexpr uint16_t bf16_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
constexpr float of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Returns fp32's value of a narrow number; exact.
constexpr float widened(uint32_t bits, NumberFormat format) {
  const int width = 1 + format.exponent_bits + format.fraction_bits;
  const uint32_t magnitude = bits & ((1u << (width - 1)) - 1);
  const uint32_t exponent = magnitude >> format.fraction_bits;
  const uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
  const uint32_t sign = bits >> (width - 1) << 31;
  const uint32_t top = (1u << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (format.has_infinity && exponent == top) {
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << (23 - format.fraction_bits));
  }
  if (!format.has_infinity && magnitude == (1u << (width - 1)) - 1) {
    return std::bit_cast<float>(0x7fc00000u);
  }
  // The value is a multiple of the least subnormal, which is a power of two.
  const uint32_t units = exponent == 0 ? fraction : fraction | 1u << format.fraction_bits;
  const int shift = exponent == 0 ? 0 : static_cast<int>(exponent) - 1;
  const auto least = std::bit_cast<float>(
      static_cast<uint32_t>(127 + 1 - bias - format.fraction_bits + shift) << 23);
  const float value = static_cast<float>(units) * least;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
// cvt.f32.f16: there is only one NaN.
constexpr float of_f16(uint16_t bits) {
  return std::bit_cast<float>(
      (bits & 0x7fffu) > 0x7c00u ? 0x7fffffffu : std::bit_cast<uint32_t>(widened(bits, kF16)));
}
constexpr float of_e4m3(uint8_t bits) { return widened(bits, kE4m3); }

// cvt.rna.tf32.f32: 10 bits of fraction, ties away from zero. NaN is truncated.
constexpr float tf32_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool is_finite = (bits & 0x7fffffffu) < 0x7f800000u;
  return std::bit_cast<float>((is_finite ? bits + 0x1000u : bits) & 0xffffe000u);
}

// a + b as fp32, rounded to odd: truncated, with the last bit set if anything was truncated. Rounding
// it again to a format with at most 22 fraction bits gives the same as rounding the sum once.
inline float sum_to_odd(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);  // sum + error is exact
  const auto nearest = static_cast<float>(sum);
  if (!(nearest - nearest == 0)) return nearest;  // infinite or NaN
  const double rest = (sum - static_cast<double>(nearest)) + error;
  if (rest == 0) return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if ((rest < 0) != (nearest < 0) && nearest != 0) --bits;  // it was rounded away from zero
  return std::bit_cast<float>(bits | 1);
}

// a * b + c in each half of a register, rounded once. Products of 16-bit numbers are exact.
template <class Widen, class Narrow>
uint32_t fused_halves(uint32_t a, uint32_t b, uint32_t c, Widen widen, Narrow narrow) {
  uint32_t result = 0;
  for (int i = 0; i < 32; i += 16) {
    const auto value = [&](uint32_t x) -> double { return widen(static_cast<uint16_t>(x >> i)); };
    result |= uint32_t{narrow(sum_to_odd(value(a) * value(b), value(c)))} << i;
  }
  return result;
}

}  // namespace flashcore::sim
