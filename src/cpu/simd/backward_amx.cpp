// bf16 inputs on the matrix registers of Intel's processors (AMX).
#include <immintrin.h>
#define FLASHCORE_SIMD_TARGET HWY_AVX3
#define FLASHCORE_SIMD_NAMESPACE amx
#define FLASHCORE_SIMD_EXTRA ",avx512bf16,amx-tile,amx-bf16"
#define FLASHCORE_SIMD_BF16
#define FLASHCORE_SIMD_AMX
#include "cpu/simd/backward-inl.hpp"

namespace flashcore::cpu {

const BackwardKernels& backward_kernels_amx() { return amx::kBackwardKernels; }

}  // namespace flashcore::cpu
