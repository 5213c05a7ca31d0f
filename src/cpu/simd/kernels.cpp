#include "cpu/simd/kernels.hpp"

namespace flashcore::cpu {

TargetKernels kernels_of(Target target) {
  switch (target) {
#if defined(__x86_64__)
    case Target::sse4:
      return {&simd_kernels_sse4(), &backward_kernels_sse4(), &quantize_kernels_sse4()};
    case Target::avx2:
      return {&simd_kernels_avx2(), &backward_kernels_avx2(), &quantize_kernels_avx2()};
    case Target::avx3:
      return {&simd_kernels_avx3(), &backward_kernels_avx3(), &quantize_kernels_avx3()};
    case Target::avx3_bf16:
      return {&simd_kernels_avx3_bf16(), &backward_kernels_avx3_bf16(), nullptr};
    case Target::amx:
      return {&simd_kernels_amx(), &backward_kernels_amx(), nullptr};
#else
    case Target::native:
      return {&simd_kernels_native(), &backward_kernels_native(), &quantize_kernels_native()};
#endif
    default:
      return {};
  }
}

}  // namespace flashcore::cpu
