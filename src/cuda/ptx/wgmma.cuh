// Asynchronous Tensor Core products of one warpgroup, four warps (wgmma, sm_90a).
//
// D(64 x N, f32) = A(64 x 16) * B(16 x N) [+ D], where N is 8 times the array's
// length. Thread 32*w + l of the warpgroup holds in d[n][e]
//   row 16*w + l/4 + 8*(e>>1), column 8*n + 2*(l%4) + (e&1):
// each warp's 16 rows are the rows of mma.sync's D, N/8 times side by side (tile/fragment.hpp).
// "ss" reads A and B through shared-memory descriptors (tile/descriptor.hpp); "rs" has A in
// registers with the owners of mma_m16n8k16's A, warp w holding rows 16*w and up.
//
// 8-bit operands are K-major, with K = 32: D(64 x N, f32) = A(64 x 32) * B(32 x N) [+ D]. A in
// registers has the layout of mma_m16n8k32's A. The hardware truncates each product some 13 bits below
// the exponent of the sum that it is added to: sums of many keys must leave the accumulator now and
// then, or they drift.
//
// Products of 8-bit operands, and those with N = 256, learn only at run time if they add: code for
// both would not fit next to 128 accumulators. tools/wgmma.py makes the products, wgmma_PLACE_TYPE,
// and lists their widths.
//
// Order: warpgroup_fence, products, warpgroup_commit, warpgroup_wait. Until the wait
// returns, no thread may touch an accumulator or an A register of its products;
// warpgroup_pin before and after keeps the compiler from moving such accesses inside.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// True if the compilation target has wgmma; true in host code.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

enum class Accumulate : int { overwrite = 0, add = 1 };
enum class Major : int { k = 0, mn = 1 };  // which index of a 16-bit operand is contiguous

// Orders this warpgroup's earlier register accesses before later products.
// PTX ISA: wgmma.fence.sync.aligned, sm_90a.
__device__ __forceinline__ void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes a group of products.
// PTX ISA: wgmma.commit_group.sync.aligned, sm_90a.
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups are unfinished.
// PTX ISA: wgmma.wait_group.sync.aligned, sm_90a.
template <int kPending>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: the compiler must have the values in their registers at this point.
template <int kCount>
__device__ __forceinline__ void warpgroup_pin(float (&d)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kCount; ++i) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

}  // namespace flashcore::cuda::ptx

#include "cuda/ptx/wgmma_products.cuh"
