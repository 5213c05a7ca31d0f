// The shared memory of a block. Kernels obtain it only here.
#pragma once

namespace flashcore::cuda::ptx {

// Returns the dynamic part, of the size that the launch requested,
// at a multiple of 1024: a whole number of periods of every swizzle.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

// Returns an object in the static part; the same object in every call for T by a kernel.
template <class T, int kAlignment = alignof(T)>
__device__ __forceinline__ T& static_shared() {
  __shared__ __align__(kAlignment) T object;
  return object;
}

}  // namespace flashcore::cuda::ptx
