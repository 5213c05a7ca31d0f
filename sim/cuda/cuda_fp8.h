// Stands for CUDA's header of this name.
#pragma once

#include <cstdint>

#include "cuda_fp16.h"

using __nv_fp8_storage_t = uint8_t;
enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t,
                                                __nv_fp8_interpretation_t type) {
  return type == __NV_E4M3 ? ::flashcore::sim::e4m3_of(x) : ::flashcore::sim::e5m2_of(x);
}

struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;

  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float x) : __x(::flashcore::sim::e4m3_of(x)) {}
  operator float() const { return ::flashcore::sim::of_e4m3(__x); }
};
