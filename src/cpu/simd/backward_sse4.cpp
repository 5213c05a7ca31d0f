#define FLASHCORE_SIMD_TARGET HWY_SSE4
#define FLASHCORE_SIMD_NAMESPACE sse4
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_sse4() { return sse4::kBackwardKernels; }

}  // namespace flashcore::cpu
