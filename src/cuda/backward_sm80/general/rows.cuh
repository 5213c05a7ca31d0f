// What backward_sm80 does by rows, before and after its tiles: delta, zeros of a packed batch, sums.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/block_sum.cuh"
#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/backward_sm80/general/params.hpp"
#include "cuda/backward_sm80/general/store_dq.cuh"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm80::general {
namespace {

// Eight products, exact but for the additions.
__device__ __forceinline__ float dot(ElementType type, const uint4& a, const uint4& b) {
  const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto left = static_cast<uint16_t>(x[i] >> 16 * half);
      const auto right = static_cast<uint16_t>(y[i] >> 16 * half);
      sum = type == ElementType::f16
                ? fmaf(ptx::f16_to_float(left), ptx::f16_to_float(right), sum)
                : fmaf(ptx::bf16_to_float(left), ptx::bf16_to_float(right), sum);
    }
  }
  return sum;
}

// LSE and delta = dO . O - dLSE of each row, by p.stats_lanes threads. Of a row without keys neither
// counts. A row whose LSE is infinite has no weights, so it gets a NaN.
__global__ void __launch_bounds__(kRowThreads)
    find_row_stats(const __grid_constant__ Params p, int64_t rows) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  for (int64_t i = thread; i < p.joint.counters; i += int64_t{gridDim.x} * kRowThreads) {
    p.joint.next_block[i] = 0;
  }
  for (int64_t i = thread; i < p.joint.zeros; i += int64_t{gridDim.x} * kRowThreads) {
    reinterpret_cast<float4*>(p.joint.dq_sums)[i] = make_float4(0, 0, 0, 0);
  }
  const int lanes = p.stats_lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t number = thread / lanes;
  const bool exists = number < rows;
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int64_t head_rows = packed ? p.total_q : p.seqlen_q;
  int in_head = 0, batch_head = 0;
  if (exists && rows <= UINT32_MAX) {  // a division that is four times as quick
    const auto n = static_cast<uint32_t>(number), d = static_cast<uint32_t>(head_rows);
    batch_head = static_cast<int>(n / d);
    in_head = static_cast<int>(n % d);
  } else if (exists) {
    batch_head = static_cast<int>(number / head_rows);
    in_head = static_cast<int>(number % head_rows);
  }
  const int head = packed ? batch_head : batch_head % p.heads_q;
  int batch = packed ? 0 : batch_head / p.heads_q;
  if (packed && exists) {
    batch = attention::last_entry(in_head, p.batch, [&](int entry) {
      return attention::clamped(p.cu_seqlens_q.at(entry), 0, p.total_q);
    });
  }
  bool used = false;
  if (exists) {
    const attention::Entry entry = attention::find_entry(p, batch);
    const int query = in_head - entry.q_row;
    used = query >= 0 && query < entry.len_q;
  }
  float sum = 0;
  if (used) {
    const attention::RowMatrix& m = p.d_o_tiles.matrix;
    const int64_t d_o = batch * m.batch + head * m.head + in_head * m.row;
    const int64_t o = batch * p.o_batch + head * p.o_head + in_head * p.o_row;
    if (p.o_chunks) {
      if (8 * lane < p.head_dim_v) {
        sum = dot(
            p.o_type,
            *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(m.data) + d_o + 8 * lane),
            *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.o) + o + 8 * lane));
      }
    } else {
      double exact = 0;
      for (int d = lane; d < p.head_dim_v; d += lanes) {
        exact += static_cast<double>(load_element(p.o_type, m.data, d_o + d)) *
                 static_cast<double>(load_element(p.o_type, p.o, o + d));
      }
      sum = static_cast<float>(exact);
    }
  }
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  if (!exists || lane != 0) return;
  float lse = 0;
  double delta = 0;
  if (used) {
    lse = p.lse[batch * p.lse_batch + head * p.lse_head + in_head * p.lse_row];
    if (lse == __int_as_float(0x7f800000)) lse = __int_as_float(0x7fffffff);
    delta = static_cast<double>(sum);
    if (p.d_lse != nullptr) {
      delta -= static_cast<double>(
          p.d_lse[batch * p.d_lse_batch + head * p.d_lse_head + in_head * p.d_lse_row]);
    }
  }
  p.rows[number] = make_float2(lse, static_cast<float>(delta));
}

// A warp per row of a packed target.
__global__ void __launch_bounds__(kRowThreads)
    zero_rows(const __grid_constant__ Target target, int64_t rows, int64_t head_rows) {
  const int64_t number = int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32;
  if (number >= rows) return;
  const int64_t begin = number / head_rows * target.head + number % head_rows * target.row;
  for (int d = static_cast<int>(threadIdx.x % 32); d < target.columns; d += 32) {
    store_element(target.type, target.data, begin + d, 0);
  }
}

struct Parts {
  double of[kRowThreads];
};

// A block per sum: of one head, and one sequence or all.
__global__ void __launch_bounds__(kRowThreads)
    add_rows(const __grid_constant__ Params p, const __grid_constant__ HeadSum sum) {
  const auto head = static_cast<int>(blockIdx.x) % p.heads_q;
  const int own = static_cast<int>(blockIdx.x) / p.heads_q;
  double total = 0;
  for (int batch = sum.by_batch ? own : 0; batch < (sum.by_batch ? own + 1 : p.batch); ++batch) {
    const attention::Entry entry = attention::find_entry(p, batch);
    const float* const rows = sum.rows + row_number(p, entry, batch, head, 0);
    for (auto i = static_cast<int>(threadIdx.x); i < entry.len_q; i += kRowThreads) {
      total += static_cast<double>(rows[i]);
    }
  }
  Parts& parts = ptx::static_shared<Parts>();
  const double all = attention::block_sum(parts.of, total);
  if (threadIdx.x != 0) return;
  sum.data[own * sum.batch + head * sum.head] = static_cast<float>(all);
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm80::general
