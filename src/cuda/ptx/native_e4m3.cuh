// Tells which targets multiply e4m3 operands of mma.sync natively (mma.cuh).
#pragma once

namespace flashcore::cuda::ptx {

// On sm_90 the compiler unpacks both operands to halves and multiplies twice, which takes registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kMultipliesE4m3 = false;
#else
inline constexpr bool kMultipliesE4m3 = true;
#endif

}  // namespace flashcore::cuda::ptx
