// Stands for CUDA's header of this name: fp16 values, rounded to nearest even.
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "engine/number_formats.hpp"

struct __half {
  uint16_t bits;

  __half() = default;
  __half(float x) : bits(::flashcore::sim::f16_of(x)) {}
  operator float() const { return ::flashcore::sim::of_f16(bits); }
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __int2half_rn(int x) { return static_cast<float>(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
