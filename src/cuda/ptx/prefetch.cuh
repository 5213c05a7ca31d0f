// Prefetches memory without using a register.
#pragma once

namespace flashcore::cuda::ptx {

// Loads the line of global memory at `address`, any address of an allocation, into L2.
// PTX ISA: prefetch.global.L2, sm_20.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace flashcore::cuda::ptx
