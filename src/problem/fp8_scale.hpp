// The scale of numbers that become fp8, the same on every backend.
#pragma once

#include "flashcore/flashcore.hpp"

namespace flashcore {

constexpr float largest_of_fp8(DType dtype) { return dtype == DType::f8e4m3 ? 448.0f : 57344.0f; }

// Of a largest magnitude. At least the smallest normal number: some processors flush what is less.
constexpr float fp8_scale(float largest, float largest_number) {
  if (largest == 0) return 1;
  const float scale = largest / largest_number;
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

}  // namespace flashcore
