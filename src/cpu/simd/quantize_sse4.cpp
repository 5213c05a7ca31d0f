#define FLASHCORE_SIMD_TARGET HWY_SSE4
#define FLASHCORE_SIMD_NAMESPACE sse4
#include "cpu/simd/quantize-inl.hpp"

namespace flashcore::cpu {

const QuantizeKernels& quantize_kernels_sse4() { return sse4::kQuantizeKernels; }

}  // namespace flashcore::cpu
