#define FLASHCORE_SIMD_TARGET HWY_AVX2
#define FLASHCORE_SIMD_NAMESPACE avx2
#include "cpu/simd/attend-inl.hpp"

namespace flashcore::cpu {

const SimdKernels& simd_kernels_avx2() { return avx2::kKernels; }

}  // namespace flashcore::cpu
