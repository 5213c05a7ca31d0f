// bf16 inputs through VDPBF16PS, two products per lane: for processors that run it at full rate.
#include <immintrin.h>
#define FLASHCORE_SIMD_TARGET HWY_AVX3
#define FLASHCORE_SIMD_NAMESPACE avx3_bf16
#define FLASHCORE_SIMD_EXTRA ",avx512bf16"
#define FLASHCORE_SIMD_BF16
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_avx3_bf16() { return avx3_bf16::kBackwardKernels; }

}  // namespace flashcore::cpu
