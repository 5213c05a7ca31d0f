// Converts elements of any type to fp32 and back, one at a time.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "cuda/attention/element_type.hpp"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::convert {

using attention::ElementType;

__device__ __forceinline__ float fp8_to_float(ElementType type, uint8_t bits) {
  return ptx::f16_to_float(type == ElementType::e4m3
                               ? static_cast<uint16_t>(ptx::e4m3x2_to_f16x2(bits))
                               : static_cast<uint16_t>(bits << 8));  // the upper half of fp16
}

__device__ __forceinline__ uint8_t float_to_fp8(ElementType type, float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE,
                               type == ElementType::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

__device__ __forceinline__ float load_element(ElementType type, const void* data, int64_t at) {
  switch (type) {
    case ElementType::f32:
      return static_cast<const float*>(data)[at];
    case ElementType::f16:
      return ptx::f16_to_float(static_cast<const uint16_t*>(data)[at]);
    case ElementType::bf16:
      return ptx::bf16_to_float(static_cast<const uint16_t*>(data)[at]);
    case ElementType::e4m3:
    case ElementType::e5m2:
      return fp8_to_float(type, static_cast<const uint8_t*>(data)[at]);
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
    case ElementType::e5m2:
      static_cast<uint8_t*>(data)[at] = float_to_fp8(type, x);
      break;
  }
}

// Unpacks 8 elements of 16 bits.
__device__ __forceinline__ void unpack_chunk(ElementType type, const uint4& from, float (&x)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int d = 0; d < 8; ++d) {
    const auto bits = static_cast<uint16_t>(words[d / 2] >> 16 * (d % 2));
    x[d] = type == ElementType::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
  }
}

// Loads or stores 8 elements at once, at a multiple of 8 bytes (fp8) or 16.
__device__ __forceinline__ void load_chunk(ElementType type, const void* data, int64_t at,
                                           float (&x)[8]) {
  if (type == ElementType::f32) {
    const auto* const from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
    const float4 low = from[0], high = from[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    return;
  }
  if (bytes_of(type) == 2) {
    unpack_chunk(type, *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + at), x);
    return;
  }
  const uint2 found = *reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(data) + at);
#pragma unroll
  for (int d = 0; d < 8; ++d) {
    x[d] = fp8_to_float(type, static_cast<uint8_t>((d < 4 ? found.x : found.y) >> 8 * (d % 4)));
  }
}

__device__ __forceinline__ void store_chunk(ElementType type, void* data, int64_t at,
                                            const float (&x)[8]) {
  if (type == ElementType::f32) {
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(data) + at);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
    return;
  }
  if (bytes_of(type) == 2) {
    const auto pack = [&](int d) {
      return type == ElementType::f16 ? ptx::pack_f16x2(x[d], x[d + 1])
                                      : ptx::pack_bf16x2(x[d], x[d + 1]);
    };
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + at) =
        make_uint4(pack(0), pack(2), pack(4), pack(6));
    return;
  }
  uint32_t words[2] = {};
  if (ptx::kHasE4m3Products && type == ElementType::e4m3) {
    words[0] = ptx::pack_e4m3x4(x[0], x[1], x[2], x[3]);
    words[1] = ptx::pack_e4m3x4(x[4], x[5], x[6], x[7]);
  } else {
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      words[d / 4] |= uint32_t{float_to_fp8(type, x[d])} << 8 * (d % 4);
    }
  }
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(data) + at) = make_uint2(words[0], words[1]);
}

// Copies the bits of one element or of 8, of any type.
template <int kCount>
__device__ __forceinline__ void copy_elements(ElementType type, const void* from, int64_t at,
                                              void* to, int64_t there) {
  static_assert(kCount == 1 || kCount == 8);
  using Of1 = std::conditional_t<kCount == 8, uint2, uint8_t>;
  using Of2 = std::conditional_t<kCount == 8, uint4, uint16_t>;
  switch (bytes_of(type)) {
    case 4:
      if constexpr (kCount == 8) {
        const auto* const source = static_cast<const uint4*>(from) + at / 4;
        auto* const target = static_cast<uint4*>(to) + there / 4;
        const uint4 low = source[0], high = source[1];
        target[0] = low, target[1] = high;
      } else {
        static_cast<uint32_t*>(to)[there] = static_cast<const uint32_t*>(from)[at];
      }
      break;
    case 2:
      static_cast<Of2*>(to)[there / kCount] = static_cast<const Of2*>(from)[at / kCount];
      break;
    default:
      static_cast<Of1*>(to)[there / kCount] = static_cast<const Of1*>(from)[at / kCount];
  }
}

}  // namespace flashcore::cuda::convert
