// Launches of kernels with options that have nothing to do with their tiles: zeros in the gradients
// of a packed batch, and dSinks from what each query adds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int kOptionThreads = 256;

// Zeros, a warp a row, in all rows of a packed gradient: which of them belong to no entry, or lie
// past its length, only the device knows.
__global__ void __launch_bounds__(kOptionThreads)
    zero_rows_kernel(const __grid_constant__ Target target, int64_t rows, int head_rows,
                     int columns) {
  const int64_t number = (int64_t{blockIdx.x} * kOptionThreads + threadIdx.x) / 32;
  if (number >= rows) return;
  const int64_t head = number / head_rows;
  auto* const row = static_cast<uint16_t*>(target.data) + head * target.head +
                    (number - head * head_rows) * target.row;
  for (int column = 8 * static_cast<int>(threadIdx.x % 32); column < columns; column += 8 * 32) {
    *reinterpret_cast<uint4*>(row + column) = make_uint4(0, 0, 0, 0);
  }
}

struct SinkParts {
  double of[kOptionThreads];
};

// A block a head: the terms of its queries, always in the same order.
__global__ void __launch_bounds__(kOptionThreads)
    add_sink_terms_kernel(const __grid_constant__ RowParams p,
                          const __grid_constant__ Options options, int block_q) {
  const auto head = static_cast<int>(blockIdx.x);
  const int64_t head_rows = int64_t{p.q_blocks} * block_q;
  double total = 0;
  for (int batch = 0; batch < block_batch(p); ++batch) {
    const float* const terms = options.sink_terms + (int64_t{batch} * p.heads_q + head) * head_rows;
    for (int64_t i = threadIdx.x; i < head_rows; i += kOptionThreads) {
      total += static_cast<double>(terms[i]);
    }
  }
  SinkParts& parts = ptx::static_shared<SinkParts>();
  parts.of[threadIdx.x] = total;
  __syncthreads();
  for (unsigned int half = kOptionThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts.of[threadIdx.x] += parts.of[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    options.d_sinks[head * options.d_sink_head] = static_cast<float>(parts.of[0]);
  }
}

cudaError_t zero_rows(const Target& target, int64_t heads, int head_rows, int columns,
                      cudaStream_t stream) {
  const int64_t rows = heads * head_rows;
  const int64_t blocks = (rows * 32 + kOptionThreads - 1) / kOptionThreads;
  return host::launch_kernel(
      &zero_rows_kernel,
      {.grid = dim3(static_cast<unsigned int>(blocks)), .threads = kOptionThreads}, stream, target,
      rows, head_rows, columns);
}

// Before the tiles.
cudaError_t zero_packed(const RowParams& p, cudaStream_t stream) {
  if (!is_packed(p)) return cudaSuccess;
  cudaError_t error = zero_rows(p.dq, p.heads_q, p.total_q, p.head_dim_qk, stream);
  if (error == cudaSuccess) error = zero_rows(p.dk, p.heads_kv, p.total_kv, p.head_dim_qk, stream);
  if (error == cudaSuccess) error = zero_rows(p.dv, p.heads_kv, p.total_kv, p.head_dim_v, stream);
  return error;
}

// After the notes of queries.
cudaError_t add_sink_terms(const RowParams& p, const Options& options, int block_q,
                           cudaStream_t stream) {
  if (options.sink_terms == nullptr) return cudaSuccess;
  return host::launch_kernel(
      &add_sink_terms_kernel,
      {.grid = dim3(static_cast<unsigned int>(p.heads_q)), .threads = kOptionThreads}, stream, p,
      options, block_q);
}

// All are loaded before the first launch.
cudaError_t prepare_option_rows() {
  cudaFuncAttributes attributes{};
  cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&zero_rows_kernel));
  if (error != cudaSuccess) return error;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&add_sink_terms_kernel));
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm90
