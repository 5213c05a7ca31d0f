// Tells the compiler about values in registers.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Compile-time only: `pointer` points to global memory.
__device__ __forceinline__ void assume_global(const void* pointer) {
  __builtin_assume(__isGlobal(pointer));
}

// Returns `x`, which is the same in all lanes of the warp, as a value that the compiler
// knows to be uniform: derived values are computed once per warp, in uniform registers,
// and take no registers of threads. All lanes of the warp call this together, never inside
// a branch that only some take. Volatile, so that the compiler does not move it into one.
// PTX ISA: redux.sync.or.b32, sm_80.
__device__ __forceinline__ uint32_t uniform(uint32_t x) {
  uint32_t y;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// Holds back later code until `condition` is known, so that it does not overtake the
// computation of the condition: an instruction that only counts for a profiler, executed if the
// condition holds. ptxas moves ordinary arithmetic across waits for wgmma, but not across this.
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

// Builds a shared-memory descriptor from its halves. It is one move, so that the compiler does
// not turn every step between descriptors into a 64-bit addition with two held registers.
// PTX ISA: mov.b64.
__device__ __forceinline__ uint64_t join_words(uint32_t low, uint32_t high) {
  uint64_t words;
  asm("mov.b64 %0, {%1, %2};" : "=l"(words) : "r"(low), "r"(high));
  return words;
}

}  // namespace flashcore::cuda::ptx
