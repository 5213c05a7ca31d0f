// Converts fp32 to fp8 with integer operations, on GPUs without the conversion: same as flashcore::encode.
#pragma once

#include <bit>
#include <cstdint>

namespace flashcore::cuda::attention {

struct Fp8Format {
  int mantissa_bits, bias;
  uint32_t largest;  // as bits
};
inline constexpr Fp8Format kE4M3{3, 7, 0x7E}, kE5M2{2, 15, 0x7B};

// Rounds to nearest, ties to even; saturates past the largest number; a NaN becomes 0x7F.
template <Fp8Format kFormat>
constexpr uint32_t fp8_of(float x) {
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kHalf = (uint32_t{1} << (kShift - 1)) - 1;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias) << 23;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kFormat.bias) << 23;
  // Adding a power of two whose last place is the subnormals' makes the addition round.
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kFormat.bias - kFormat.mantissa_bits)
                              << 23;
  const auto raw = std::bit_cast<uint32_t>(x);
  const uint32_t size = raw & 0x7FFFFFFFU, sign = raw >> 24 & 0x80U;
  uint32_t bits = (size - kRebias + kHalf + (size >> kShift & 1U)) >> kShift;
  if (size < kSmallestNormal) {
    const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(kMagic);
    bits = std::bit_cast<uint32_t>(sum) - kMagic;
  }
  if (bits > kFormat.largest) bits = kFormat.largest;
  return size > 0x7F800000U ? 0x7FU : bits | sign;
}

}  // namespace flashcore::cuda::attention
