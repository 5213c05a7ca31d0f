#define FLASHCORE_SIMD_TARGET HWY_AVX3
#define FLASHCORE_SIMD_NAMESPACE avx3
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_avx3() { return avx3::kBackwardKernels; }

}  // namespace flashcore::cpu
