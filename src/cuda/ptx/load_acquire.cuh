// x = *address, and what the thread does after it sees what other blocks wrote before they released
// what was read.
// PTX ISA: ld.acquire.gpu.global.u64, sm_70.
#pragma once

namespace flashcore::cuda::ptx {

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long* address) {
  unsigned long long x;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(address) : "memory");
  return x;
}

}  // namespace flashcore::cuda::ptx
