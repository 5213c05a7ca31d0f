#define FLASHCORE_SIMD_TARGET HWY_AVX2
#define FLASHCORE_SIMD_NAMESPACE avx2
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_avx2() { return avx2::kBackwardKernels; }

}  // namespace flashcore::cpu
