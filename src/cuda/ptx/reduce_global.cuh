// Additions to global memory whose sums nobody waits for.
#pragma once

namespace flashcore::cuda::ptx {

// address[i] += x[i], each addition atomic; 16-byte aligned.
// PTX ISA: red.global.add.v4.f32, sm_90; red.global.add.f32, sm_60.
__device__ __forceinline__ void reduce_add_f32x4(float* address, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(address + i), "f"(x[i])
                 : "memory");
  }
#endif
}

// ++*address, after what this thread wrote, or knows by a barrier that others wrote: a thread of
// another block that sees the sum by load_acquire sees all of that.
// PTX ISA: red.release.gpu.global.add.u64, sm_70.
__device__ __forceinline__ void count_release(unsigned long long* address) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(address) : "memory");
}

}  // namespace flashcore::cuda::ptx
