// Stands for CUDA's header of this name: bf16 values, rounded to nearest even.
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "engine/number_formats.hpp"

struct __nv_bfloat16 {
  uint16_t bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(::flashcore::sim::bf16_of(x)) {}
  operator float() const { return ::flashcore::sim::of_bf16(bits); }
};

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
