// One element of a bias.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/common/pairs.hpp"
#include "cuda/ptx/convert.cuh"

namespace flashcore::cuda::backward_sm90 {

__device__ __forceinline__ float bias_element(const Pairs& pairs, int64_t at) {
  if (pairs.bias_type == BiasType::f32) {
    return __ldg(static_cast<const float*>(pairs.bias.data) + at);
  }
  const uint16_t bits = __ldg(static_cast<const uint16_t*>(pairs.bias.data) + at);
  return pairs.bias_type == BiasType::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
}

// The key that a run's dropout draws with.
__device__ __forceinline__ PhiloxKey dropout_key_of(const Pairs& pairs) {
  if (pairs.state == nullptr) return pairs.key;
  return dropout_key(static_cast<uint64_t>(__ldg(pairs.state)),
                     static_cast<uint64_t>(__ldg(pairs.state + pairs.state_step)));
}

}  // namespace flashcore::cuda::backward_sm90
