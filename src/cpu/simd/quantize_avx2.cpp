#define FLASHCORE_SIMD_TARGET HWY_AVX2
#define FLASHCORE_SIMD_NAMESPACE avx2
#include "cpu/simd/quantize-inl.hpp"

namespace flashcore::cpu {

const QuantizeKernels& quantize_kernels_avx2() { return avx2::kQuantizeKernels; }

}  // namespace flashcore::cpu
