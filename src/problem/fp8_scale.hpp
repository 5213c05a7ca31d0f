// The scale for conversion to fp8, the same on every backend; device code includes it.
#pragma once

namespace flashcore {

inline constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;

// At least the smallest normal number: some processors flush subnormals to zero.
constexpr float fp8_scale(float largest, float largest_number) {
  if (largest == 0) return 1;
  const float scale = largest / largest_number;
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

}  // namespace flashcore
