// For the simulator, which takes a read of shared memory that nobody wrote for a fault. No instruction.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// What is read from here may be unwritten; nothing depends on it then.
template <class T>
__device__ __forceinline__ void may_be_unwritten(const T& /*object*/) {}
__device__ __forceinline__ void may_be_unwritten(uint32_t /*address*/, uint32_t /*bytes*/) {}

}  // namespace flashcore::cuda::ptx
