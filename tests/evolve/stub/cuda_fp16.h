// Lets g++ compile a candidate for the driver's stub: threads run one after the other, so kernels
// with barriers are not supported.
#pragma once

#include <cmath>
#include <cstdint>

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __constant__ __attribute__((visibility("default")))
#define __shared__ static
#define __launch_bounds__(...)

struct Index {
  unsigned x, y, z;
};
extern "C" {
__attribute__((visibility("default"))) Index threadIdx, blockIdx, blockDim, gridDim;
}
using __half = _Float16;
inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half __float2half(float x) { return static_cast<__half>(x); }
inline int atomicAdd(int* at, int value) {
  const int before = *at;
  *at += value;
  return before;
}
inline void __trap() { __builtin_trap(); }
inline long long clock64() { return static_cast<long long>(__builtin_ia32_rdtsc()); }
