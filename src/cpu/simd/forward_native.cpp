// The compiler's baseline instruction set: NEON on arm64.
#define FLASHCORE_SIMD_NAMESPACE native
#include "cpu/simd/attend-inl.hpp"

namespace flashcore::cpu {

const SimdKernels& simd_kernels_native() { return native::kKernels; }

}  // namespace flashcore::cpu
