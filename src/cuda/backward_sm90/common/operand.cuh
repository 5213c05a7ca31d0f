// wgmma operands in shared memory, as 32-bit sums: a
// 64-bit descriptor per product would take registers.
#pragma once

#include <cstdint>

#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/ptx/pin.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::backward_sm90 {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;
using ptx::Accumulate, ptx::Major;

struct Operand {
  uint32_t low;

  // `address`: in shared memory; opaque, so that the compiler does not keep a loop's sums.
  __device__ __forceinline__ Operand(uint32_t address, uint32_t leading_bytes)
      : low(ptx::opaque(address) >> 4 | (leading_bytes >> 4) << 16) {}

  // Returns the descriptor at a constant `offset` in bytes.
  __device__ __forceinline__ uint64_t at(uint32_t offset) const {
    constexpr auto kHigh = static_cast<uint32_t>(
        tile::smem_descriptor(0, 0, tile::kEightRowBytes, tile::DescriptorSwizzle::span_128) >> 32);
    return ptx::join_words(low + (offset >> 4), kHigh);
  }
};

}  // namespace flashcore::cuda::backward_sm90
