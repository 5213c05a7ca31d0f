#define FLASHCORE_SIMD_TARGET HWY_AVX3
#define FLASHCORE_SIMD_NAMESPACE avx3
#include "cpu/simd/quantize-inl.hpp"

namespace flashcore::cpu {

const QuantizeKernels& quantize_kernels_avx3() { return avx3::kQuantizeKernels; }

}  // namespace flashcore::cpu
