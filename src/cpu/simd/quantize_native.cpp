#define FLASHCORE_SIMD_NAMESPACE native
#include "cpu/simd/quantize-inl.hpp"

namespace flashcore::cpu {

const QuantizeKernels& quantize_kernels_native() { return native::kQuantizeKernels; }

}  // namespace flashcore::cpu
