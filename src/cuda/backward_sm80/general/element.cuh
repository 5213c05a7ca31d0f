// The operations that differ between the types of the computation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/element.cuh"
#include "cuda/backward_sm80/general/params.hpp"

namespace flashcore::cuda::backward_sm80::general {

using attention::Bf16, attention::Fp16;
using attention::load_element, attention::pack_pair, attention::store_element;

// Also used if types are mixed: each element is converted to fp32 when loaded.
struct Fp32 {
  static constexpr uint32_t kInfinity = 0x7f800000, kOne = 0x3f800000;
};

template <class Element>
inline constexpr bool kIsFp32 = std::is_same_v<Element, Fp32>;
template <class Element>
inline constexpr int kElementBytes = kIsFp32<Element> ? 4 : 2;

// Stores two neighbours at an even column of a target whose pairs may be stored at once.
__device__ __forceinline__ void store_pair(ElementType type, void* data, int64_t at, float low,
                                           float high) {
  if (type == ElementType::f32) {
    *reinterpret_cast<float2*>(static_cast<float*>(data) + at) = make_float2(low, high);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(data) + at) = pack_pair(type, low, high);
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
