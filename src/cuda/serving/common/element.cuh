// Elements of any type as fp32 and back, one at a time.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/serving/common/element_type.hpp"

namespace flashcore::cuda::serving {

__device__ __forceinline__ float load_element(ElementType type, const void* data, int64_t at) {
  switch (type) {
    case ElementType::f32:
      return static_cast<const float*>(data)[at];
    case ElementType::f16:
      return ptx::f16_to_float(static_cast<const uint16_t*>(data)[at]);
    case ElementType::bf16:
      return ptx::bf16_to_float(static_cast<const uint16_t*>(data)[at]);
    case ElementType::e4m3:
      return ptx::f16_to_float(
          static_cast<uint16_t>(ptx::e4m3x2_to_f16x2(static_cast<const uint8_t*>(data)[at])));
    case ElementType::e5m2:  // the upper half of fp16
      return ptx::f16_to_float(static_cast<uint16_t>(static_cast<const uint8_t*>(data)[at] << 8));
  }
  return 0;
}

// Rounds to nearest even. fp8 saturates; NaN stays NaN.
__device__ __forceinline__ void store_element(ElementType type, void* data, int64_t at, float x) {
  switch (type) {
    case ElementType::f32:
      static_cast<float*>(data)[at] = x;
      break;
    case ElementType::f16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_f16x2(x, 0));
      break;
    case ElementType::bf16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_bf16x2(x, 0));
      break;
    case ElementType::e4m3:
      static_cast<uint8_t*>(data)[at] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
      break;
    case ElementType::e5m2:
      static_cast<uint8_t*>(data)[at] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
      break;
  }
}

// One element's bits, whatever they mean.
__device__ __forceinline__ void copy_element(ElementType type, const void* from, int64_t at,
                                             void* to, int64_t there) {
  switch (bytes_of(type)) {
    case 4:
      static_cast<uint32_t*>(to)[there] = static_cast<const uint32_t*>(from)[at];
      break;
    case 2:
      static_cast<uint16_t*>(to)[there] = static_cast<const uint16_t*>(from)[at];
      break;
    default:
      static_cast<uint8_t*>(to)[there] = static_cast<const uint8_t*>(from)[at];
  }
}

}  // namespace flashcore::cuda::serving
