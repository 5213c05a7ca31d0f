// The largest of three integers.
#pragma once

namespace flashcore::cuda::ptx {

// One instruction from sm_90 on, two before.
__device__ __forceinline__ int max_of_three(int a, int b, int c) { return __vimax3_s32(a, b, c); }

}  // namespace flashcore::cuda::ptx
