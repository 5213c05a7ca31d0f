// Sums in memory that blocks add to, and counters that order the blocks. The loop is
// one asm block: a loop visible to the compiler makes it serialise the wgmma in flight.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// sums[i] += x[i] for four numbers at a multiple of 16 bytes, each atomically.
// PTX ISA: red.global.add.v4.f32, sm_90; red.global.add.f32 before.
__device__ __forceinline__ void add_f32x4(float* sums, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(sums), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(sums + i), "f"(x[i]) : "memory");
  }
#endif
}

// sums[i] += x[i] or, if `stores`, sums[i] = x[i], without a branch.
// PTX ISA: red.global.add.v4.f32, st.global.v4.f32; sm_90.
__device__ __forceinline__ void add_or_store_f32x4(float* sums, const float (&x)[4], bool stores) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred stores;\n"
      "setp.ne.u32 stores, %5, 0;\n"
      "@stores st.global.v4.f32 [%0], {%1,%2,%3,%4};\n"
      "@!stores red.global.add.v4.f32 [%0], {%1,%2,%3,%4};\n"
      "}" ::"l"(sums),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(static_cast<uint32_t>(stores))
      : "memory");
#else
  static_cast<void>(sums), static_cast<void>(x), static_cast<void>(stores);
  __trap();
#endif
}

// x[i] += sums[i] for four numbers at a multiple of 16 bytes that other blocks have written.
// PTX ISA: ld.relaxed.gpu.global.v4.f32, sm_70.
__device__ __forceinline__ void load_and_add_f32x4(float (&x)[4], const float* sums) {
  float y[4];
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(y[0]), "=f"(y[1]), "=f"(y[2]), "=f"(y[3])
               : "l"(sums)
               : "memory");
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] += y[i];
}

// Waits until *counter is `turn`; the thread's later accesses
// see everything that precedes the increments of the counter.
// PTX ISA: ld.acquire.gpu.global.u32, sm_70.
__device__ __forceinline__ void wait_for_turn(const uint32_t* counter, uint32_t turn) {
  asm volatile(
      "{\n"
      ".reg .pred here;\n"
      ".reg .u32 now;\n"
      "again:\n"
      "ld.acquire.gpu.global.u32 now, [%0];\n"
      "setp.eq.u32 here, now, %1;\n"
      "@here bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"l"(counter),
      "r"(turn)
      : "memory");
}

// *counter += 1, ordered after everything that this thread did and saw.
// PTX ISA: red.release.gpu.global.add.u32 and .u64, sm_70.
__device__ __forceinline__ void count_turn(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ void count_turn(unsigned long long* counter) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(counter) : "memory");
}

// Orders this thread's earlier accesses before its later ones, for the whole GPU.
// PTX ISA: fence.acq_rel.gpu, sm_70.
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace flashcore::cuda::ptx
