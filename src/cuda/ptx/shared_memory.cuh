// The shared memory of a block: kernels get it here and nowhere else.
#pragma once

namespace flashcore::cuda::ptx {

// Its dynamic part, as many bytes as the launch asked for, at a multiple of 1024: a whole number of
// periods of every swizzle.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

// An object in its static part; the same one in every call for T by a kernel.
template <class T, int kAlignment = alignof(T)>
__device__ __forceinline__ T& static_shared() {
  __shared__ __align__(kAlignment) T object;
  return object;
}

}  // namespace flashcore::cuda::ptx
