#define FLASHCORE_SIMD_TARGET HWY_AVX3
#define FLASHCORE_SIMD_NAMESPACE avx3
#include "cpu/simd/attend-inl.hpp"

namespace flashcore::cpu {

const SimdKernels& simd_kernels_avx3() { return avx3::kKernels; }

}  // namespace flashcore::cpu
