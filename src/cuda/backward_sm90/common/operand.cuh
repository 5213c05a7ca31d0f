// Operands of wgmma in shared memory, as 32-bit sums: a 64-bit descriptor a product would take
// registers.
#pragma once

#include <cstdint>

#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::backward_sm90 {

struct Operand {
  uint32_t low;

  // `address`: in shared memory; opaque, so that the compiler does not keep the sums of a loop.
  __device__ __forceinline__ Operand(uint32_t address, uint32_t leading_bytes)
      : low(ptx::opaque(address) >> 4 | (leading_bytes >> 4) << 16) {}

  // `offset` bytes further on: a constant.
  __device__ __forceinline__ uint64_t at(uint32_t offset) const {
    constexpr auto kHigh = static_cast<uint32_t>(
        tile::smem_descriptor(0, 0, tile::kEightRowBytes, tile::DescriptorSwizzle::span_128) >> 32);
    return ptx::join_words(low + (offset >> 4), kHigh);
  }
};

}  // namespace flashcore::cuda::backward_sm90
