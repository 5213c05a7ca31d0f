// One element of a bias.
#pragma once

#include <cstdint>

#include "cuda/attention/element.cuh"
#include "cuda/backward_sm90/common/pairs.hpp"

namespace flashcore::cuda::backward_sm90 {

__device__ __forceinline__ float bias_element(const Pairs& pairs, int64_t at) {
  return attention::load_element(pairs.bias_type, pairs.bias.data, at);
}

// The key that a run's dropout draws with.
__device__ __forceinline__ PhiloxKey dropout_key_of(const Pairs& pairs) {
  if (pairs.state == nullptr) return pairs.key;
  return dropout_key(static_cast<uint64_t>(__ldg(pairs.state)),
                     static_cast<uint64_t>(__ldg(pairs.state + pairs.state_step)));
}

}  // namespace flashcore::cuda::backward_sm90
