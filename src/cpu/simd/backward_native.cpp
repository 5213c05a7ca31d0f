// The compiler's baseline instruction set: NEON on arm64.
#define FLASHCORE_SIMD_NAMESPACE native
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_native() { return native::kBackwardKernels; }

}  // namespace flashcore::cpu
