// cp.async: 16-byte copies from global to shared memory that bypass registers (sm_80 and later).
//
//   issue copies ... | commit_group | (compute on older groups) | wait_group<N> | barrier | read
//
// wait_group makes a thread's own copies visible to itself; a barrier shows them to the others.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

// shared[0..15] = valid ? global[0..15] : 0, asynchronously, past L1.
// Both addresses are 16-byte aligned; `global` must be a readable address even when it is not read.
// PTX ISA: cp.async.cg.shared.global, with src-size 0 or 16.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// The copy without a guard: for tiles that lie entirely inside the tensor.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

// The copy to an address in shared memory: converting a pointer takes instructions before a copy.
__device__ __forceinline__ void cp_async_16(uint32_t address, const uint4* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

// Closes the group of copies that this thread issued since the last commit (it may be empty).
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's youngest groups are still in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Arrives once at the mbarrier at shared address `barrier`, when all copies that this thread has
// issued so far have landed. This counts among the arrivals that the barrier was initialised for.
// PTX ISA: cp.async.mbarrier.arrive.noinc.shared::cta.b64, sm_80.
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace flashcore::cuda::ptx
