// What backward_sm80 does by rows, before and after its tiles: delta, zeros of a packed batch, sums.
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/backward_sm80/general/launch.hpp"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm80::general {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

__device__ __forceinline__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

// A warp a row of the workspace: LSE and delta = dO . O - dLSE. Of a row without keys neither counts.
// A row whose LSE is infinite has no weights, so it gets a NaN.
__global__ void __launch_bounds__(kThreads)
    note_rows(const __grid_constant__ Params p, int64_t rows) {
  const int64_t number = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (number >= rows) return;
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int64_t head_rows = packed ? p.total_q : p.seqlen_q;
  const auto in_head = static_cast<int>(number % head_rows);
  const auto batch_head = static_cast<int>(number / head_rows);
  const int head = packed ? batch_head : batch_head % p.heads_q;
  const int batch = packed ? attention::last_entry(in_head, p.batch,
                                                   [&](int entry) {
                                                     return attention::clamped(
                                                         p.cu_seqlens_q.at(entry), 0, p.total_q);
                                                   })
                           : batch_head / p.heads_q;
  const attention::Entry entry = attention::find_entry(p, batch);
  const int query = in_head - entry.q_row;
  float lse = 0;
  double delta = 0;
  if (query >= 0 && query < entry.len_q) {
    const attention::RowMatrix& m = p.d_o_tiles.matrix;
    const int64_t d_o = batch * m.batch + head * m.head + in_head * m.row;
    const int64_t o = batch * p.o_batch + head * p.o_head + in_head * p.o_row;
    for (int d = lane; d < p.head_dim_v; d += 32) {
      delta += static_cast<double>(load_element(p.o_type, m.data, d_o + d)) *
               static_cast<double>(load_element(p.o_type, p.o, o + d));
    }
    delta = warp_sum(static_cast<float>(delta));
    lse = p.lse[batch * p.lse_batch + head * p.lse_head + in_head * p.lse_row];
    if (lse == __int_as_float(0x7f800000)) lse = __int_as_float(0x7fffffff);
    if (p.d_lse != nullptr) {
      delta -= static_cast<double>(
          p.d_lse[batch * p.d_lse_batch + head * p.d_lse_head + in_head * p.d_lse_row]);
    }
  }
  if (lane != 0) return;
  p.rows[number] = make_float2(lse, static_cast<float>(delta));
}

// A warp a row of a packed target.
__global__ void __launch_bounds__(kThreads)
    zero_rows(const __grid_constant__ Target target, int64_t rows, int64_t head_rows) {
  const int64_t number = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (number >= rows) return;
  const int64_t begin = number / head_rows * target.head + number % head_rows * target.row;
  for (int d = static_cast<int>(threadIdx.x % 32); d < target.columns; d += 32) {
    store_element(target.type, target.data, begin + d, 0);
  }
}

struct Parts {
  double of[kThreads];
};

// A block a sum: of one head, and one batch entry or all.
__global__ void __launch_bounds__(kThreads)
    add_rows(const __grid_constant__ Params p, const __grid_constant__ HeadSum sum) {
  const auto head = static_cast<int>(blockIdx.x) % p.heads_q;
  const int own = static_cast<int>(blockIdx.x) / p.heads_q;
  double total = 0;
  for (int batch = sum.by_batch ? own : 0; batch < (sum.by_batch ? own + 1 : p.batch); ++batch) {
    const attention::Entry entry = attention::find_entry(p, batch);
    const float* const rows = sum.rows + row_number(p, entry, batch, head, 0);
    for (auto i = static_cast<int>(threadIdx.x); i < entry.len_q; i += kThreads) {
      total += static_cast<double>(rows[i]);
    }
  }
  Parts& parts = ptx::static_shared<Parts>();
  parts.of[threadIdx.x] = total;
  __syncthreads();
  for (unsigned int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts.of[threadIdx.x] += parts.of[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  sum.data[own * sum.batch + head * sum.head] = static_cast<float>(parts.of[0]);
}

// Blocks of a warp a row.
dim3 blocks_of(int64_t rows) {
  return dim3(static_cast<unsigned int>((rows + kWarps - 1) / kWarps));
}

template <class Kernel>
cudaError_t load(Kernel kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace

cudaError_t prepare_rows() {
  for (const cudaError_t error : {load(&note_rows), load(&zero_rows), load(&add_rows)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_note_rows(const Params& params, int64_t rows, cudaStream_t stream) {
  return host::launch_kernel(&note_rows, {.grid = blocks_of(rows), .threads = kThreads}, stream,
                             params, rows);
}

cudaError_t launch_zero_rows(const Target& target, int64_t rows, int64_t head_rows,
                             cudaStream_t stream) {
  return host::launch_kernel(&zero_rows, {.grid = blocks_of(rows), .threads = kThreads}, stream,
                             target, rows, head_rows);
}

cudaError_t launch_add_rows(const Params& params, const HeadSum& sum, cudaStream_t stream) {
  const int sums = params.heads_q * (sum.by_batch ? params.batch : 1);
  return host::launch_kernel(&add_rows,
                             {.grid = dim3(static_cast<unsigned int>(sums)), .threads = kThreads},
                             stream, params, sum);
}

}  // namespace flashcore::cuda::backward_sm80::general
