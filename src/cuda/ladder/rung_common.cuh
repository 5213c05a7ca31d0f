// Shared by all rungs, and taught by none: a block's tile, the location of its data, the keys
// that a row may see, 16-byte tile copies with zero-filled tails, and the checked launch.
//
// A block owns one tile of query rows of one (batch, head). All of B, H and the query tiles share
// gridDim.x, which reaches 2^31 - 1; addresses are 64-bit.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda/attention/softmax.cuh"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ladder/rung.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::ladder {

inline constexpr int kWarpSize = 32;
using attention::finite_reference, attention::kLn2, attention::kLog2E;

// --- index arithmetic ---

constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }

// Returns the number of keys, counted from key 0, that query `row` may see.
constexpr int visible_keys(const RungParams& params, int row) {
  if (!params.causal) return params.seqlen_kv;
  const int64_t keys = params.causal_offset + row + 1;  // the launch has clamped the offset
  return static_cast<int>(keys < 0 ? 0 : (keys < params.seqlen_kv ? keys : params.seqlen_kv));
}

// The data of one (batch, head). `lse` is null if it is not requested.
struct Head {
  const __half *q, *k, *v;
  __half* o;
  float* lse;
};

__device__ inline Head head_of(const RungParams& params, int64_t batch_head) {
  const int64_t batch = batch_head / params.heads, head = batch_head % params.heads;
  const auto at = [&](const Strides& stride) { return batch * stride.batch + head * stride.head; };
  return {static_cast<const __half*>(params.q) + at(params.q_stride),
          static_cast<const __half*>(params.k) + at(params.k_stride),
          static_cast<const __half*>(params.v) + at(params.v_stride),
          static_cast<__half*>(params.o) + at(params.o_stride),
          params.lse == nullptr ? nullptr : params.lse + at(params.lse_stride)};
}

// The tile of query rows that this block owns, and the keys that any of its rows may see. Keys at
// or past `kv_end` are treated as if they were past the end of the sequence.
struct QueryTileWork {
  Head head;
  int first_row;  // of the sequence
  int kv_end;
};

__device__ inline QueryTileWork query_tile_work(const RungParams& params, int64_t batch_head,
                                                int q_tile, int block_q) {
  const int first_row = q_tile * block_q;
  const int last_row = min(first_row + block_q, params.seqlen_q) - 1;
  return {head_of(params, batch_head), first_row, visible_keys(params, last_row)};
}

__device__ inline QueryTileWork query_tile_work(const RungParams& params, int block_q) {
  const int q_tiles = ceil_div(params.seqlen_q, block_q);
  return query_tile_work(params, blockIdx.x / q_tiles, static_cast<int>(blockIdx.x % q_tiles),
                         block_q);
}

// Returns how many of the `block_kv` keys from `kv_first` on row `row` of the tile may see.
__device__ inline int visible_in_tile(const RungParams& params, const QueryTileWork& work, int row,
                                      int kv_first, int block_kv) {
  return min(max(visible_keys(params, work.first_row + row) - kv_first, 0), block_kv);
}

// --- shared memory ---

template <class T>
__device__ T& shared_storage() {
  return *reinterpret_cast<T*>(ptx::dynamic_shared());
}

// Copies rows [first_row, first_row + kRows) of a [*, kHeadDim] matrix into a dense shared tile,
// 16 bytes per thread at a time. Rows at or past `end_row` become zero: a zero row of V is harmless
// under a zero probability, where a stale NaN would not be.
template <int kThreads, int kRows, int kHeadDim>
__device__ void load_tile(__half* tile, const __half* matrix, int64_t row_stride, int first_row,
                          int end_row) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    uint4 chunk{};
    if (first_row + row < end_row) {
      chunk = *reinterpret_cast<const uint4*>(matrix + (first_row + row) * row_stride + column);
    }
    *reinterpret_cast<uint4*>(tile + row * kHeadDim + column) = chunk;
  }
}

// --- values that only some rows of a tile may see ---
//
// A Tensor Core product multiplies every probability of a tile by every value, and 0
// * NaN is NaN. Under a causal mask, a NaN or Inf in V would therefore reach rows
// that may not see it. Tiles on the diagonal are scanned, and a tile that holds such
// a value is multiplied by scalar code, which stops at each row's last visible key.

// Returns whether any of the 8 halves in `chunk` is NaN or Inf: adding
// one to a full exponent carries into the sign bit, which was cleared.
__device__ inline bool any_nonfinite(uint4 chunk) {
  const auto carry = [](uint32_t pair) { return (pair & 0x7c007c00U) + 0x04000400U; };
  return ((carry(chunk.x) | carry(chunk.y) | carry(chunk.z) | carry(chunk.w)) & 0x80008000U) != 0;
}

// Returns whether some row of the tile of `block_kv` keys from
// `kv_first` on may not see all of the keys that other rows may see.
__device__ inline bool on_diagonal(const RungParams& params, const QueryTileWork& work,
                                   int kv_first, int block_kv) {
  return visible_keys(params, work.first_row) < min(kv_first + block_kv, work.kv_end);
}

// Checks one thread's share of a shared tile of kHalves elements.
template <int kThreads, int kHalves>
__device__ bool any_nonfinite(const __half* tile, int thread) {
  bool found = false;
  for (int i = thread; i < kHalves / 8; i += kThreads) {
    found |= any_nonfinite(reinterpret_cast<const uint4*>(tile)[i]);
  }
  return found;
}

// --- softmax ---

// 1 / sum, or 0 for a row that has seen no key. A NaN sum stays NaN.
__device__ inline float inverse_or_zero(float sum) { return sum == 0.0F ? 0.0F : 1.0F / sum; }

// The softmax scale in units of log2, for kernels that find the maximum
// before they scale: this requires a positive scale, so the sign moves to the
// scores. A scale of 0 becomes one so small that all scaled scores vanish.
struct PositiveScale {
  float log2;
  bool negate;
};

__device__ inline PositiveScale positive_scale(const RungParams& params) {
  return {fmaxf(fabsf(params.softmax_scale) * kLog2E, 1e-30F), params.softmax_scale < 0.0F};
}

// log(sum of exp(score)), from the maximum in units of log2 and the sum relative to it.
__device__ inline float log_sum_exp(float max_log2, float sum) {
  return sum == 0.0F ? -std::numeric_limits<float>::infinity()
                     : (finite_reference(max_log2) + log2f(sum)) * kLn2;
}

// --- launch ---

inline size_t no_workspace(const RungParams&) { return 0; }

// More than 48 KB of shared memory per block must be requested explicitly.
template <class... Args>
cudaError_t allow_shared_bytes(void (*kernel)(Args...), size_t shared_bytes) {
  if (shared_bytes <= 48 * 1024) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes));
}

// Launches `kernel` on `blocks` blocks; 0 is allowed. Returns the launch's own error.
template <class... Args>
cudaError_t launch_blocks(void (*kernel)(Args...), int64_t blocks, int threads, size_t shared_bytes,
                          cudaStream_t stream, std::type_identity_t<Args>... args) {
  if (blocks == 0) return cudaSuccess;
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const cudaError_t error = allow_shared_bytes(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  return host::launch_kernel(kernel,
                             {.grid = dim3(static_cast<unsigned>(blocks)),
                              .threads = static_cast<unsigned>(threads),
                              .shared_bytes = static_cast<unsigned>(shared_bytes)},
                             stream, args...);
}

// Returns the parameters with the causal offset clamped to the
// range in which it matters, so that kernels may add a row to it.
inline RungParams clamped(RungParams params) {
  params.causal_offset = std::clamp<int64_t>(params.causal_offset, -int64_t{params.seqlen_q},
                                             int64_t{params.seqlen_kv});
  return params;
}

// Returns the number of multiprocessors of the current device.
inline cudaError_t multiprocessor_count(int* count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

inline int64_t query_tiles(const RungParams& params, int block_q) {
  return int64_t{params.batch} * params.heads * ceil_div(params.seqlen_q, block_q);
}

// One block per tile of kBlockQ query rows, with a kernel for each head dimension.
template <int kBlockQ, int kThreads, class Shared64, class Shared128>
cudaError_t launch_by_head_dim(void (*head_dim_64)(RungParams), void (*head_dim_128)(RungParams),
                               const RungParams& params, cudaStream_t stream) {
  const int64_t blocks = query_tiles(params, kBlockQ);
  switch (params.head_dim) {
    case 64:
      return launch_blocks(head_dim_64, blocks, kThreads, sizeof(Shared64), stream,
                           clamped(params));
    case 128:
      return launch_blocks(head_dim_128, blocks, kThreads, sizeof(Shared128), stream,
                           clamped(params));
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace flashcore::cuda::ladder
