// What the compiler may know about a value in a register.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// For the compiler alone: what `pointer` points to lies in global memory.
__device__ __forceinline__ void assume_global(const void* pointer) {
  __builtin_assume(__isGlobal(pointer));
}

// `x`, the same in all lanes of the warp, as a value that the compiler knows to be: what is made of
// it is computed once per warp, in uniform registers, and costs the threads none. All lanes of the
// warp call this together: never inside a branch that only some of them take. Volatile, so that the
// compiler does not move it into one.
// PTX ISA: redux.sync.or.b32, sm_80.
__device__ __forceinline__ uint32_t uniform(uint32_t x) {
  uint32_t y;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// What follows waits until `condition` is known, and so does not overtake what it was made of: an
// instruction that does nothing but count for a profiler, and runs when it holds. ptxas moves
// ordinary arithmetic across waits for wgmma, but not across this.
// PTX ISA: pmevent.
__device__ __forceinline__ void hold_back(bool condition) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %0, 0;\n"
      "@p pmevent 1;\n"
      "}" ::"r"(static_cast<uint32_t>(condition))
      : "memory");
}

// A shared-memory descriptor from its halves. As one move, so that the compiler does not make a
// 64-bit addition, with two registers held, of every step from one descriptor to the next.
// PTX ISA: mov.b64.
__device__ __forceinline__ uint64_t join_words(uint32_t low, uint32_t high) {
  uint64_t words;
  asm("mov.b64 %0, {%1, %2};" : "=l"(words) : "r"(low), "r"(high));
  return words;
}

}  // namespace flashcore::cuda::ptx
