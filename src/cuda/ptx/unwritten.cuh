// For the simulator, which reports reads of unwritten shared memory as faults. No instruction.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// The object may be unwritten when read; then nothing depends on its value.
template <class T>
__device__ __forceinline__ void may_be_unwritten(const T& /*object*/) {}
__device__ __forceinline__ void may_be_unwritten(uint32_t /*address*/, uint32_t /*bytes*/) {}

}  // namespace flashcore::cuda::ptx
