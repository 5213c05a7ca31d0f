// x = *address; the thread's later accesses see what
// other blocks wrote before they released the value read.
// PTX ISA: ld.acquire.gpu.global.u64, sm_70.
#pragma once

namespace flashcore::cuda::ptx {

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long* address) {
  unsigned long long x;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(address) : "memory");
  return x;
}

}  // namespace flashcore::cuda::ptx
