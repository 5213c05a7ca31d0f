// Stands for src/cuda/ptx/byte_signs.cuh.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

template <uint32_t kByte>
inline uint32_t byte_signs(uint32_t low, uint32_t high) {
  static_assert(kByte < 4);
  constexpr uint32_t kTop = 0x80U << (8 * kByte);
  return ((low & kTop) != 0 ? 0xffffU : 0U) | ((high & kTop) != 0 ? 0xffff0000U : 0U);
}

}  // namespace flashcore::cuda::ptx
