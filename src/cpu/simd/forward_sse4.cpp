#define FLASHCORE_SIMD_TARGET HWY_SSE4
#define FLASHCORE_SIMD_NAMESPACE sse4
#include "cpu/simd/attend-inl.hpp"

namespace flashcore::cpu {

const SimdKernels& simd_kernels_sse4() { return sse4::kKernels; }

}  // namespace flashcore::cpu
