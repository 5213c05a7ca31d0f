// Rung 04, wmma_pv: both products on the Tensor Cores, by store -> softmax -> rebuild.
//
// Adds: P V on WMMA, for which P is written as half. O is in accumulator
// fragments, whose layout is unspecified, so to rescale its rows a warp stores
// its fragment to its own scratch tile, multiplies there, and loads it back.
//
//   per key tile:  load K, V | S = Q K^T, store | softmax, P | O: store, rescale, rebuild; O += P V
//                            ^ barrier          ^ barrier    ^ barrier                    barrier ^
//
// Layout: 8 warps. Scores: warps 0 to 3 own 16 rows x 16 keys each. Softmax: one thread per row.
// Output: 2 x 4 warps, each owns 16 rows and every fourth group of 16 columns. Tiles in shared
// memory are not swizzled, so the 8 rows that a fragment load reads at once lie in one bank group.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWmma = 16;  // a WMMA tile is 16 x 16 x 16
constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kColumnWarps = 4;  // side by side over the output's columns
constexpr int kMinBlocks = 3;    // per SM: at most 80 registers per thread

using Accumulator = wmma::fragment<wmma::accumulator, kWmma, kWmma, kWmma, float>;
using RowMajorA = wmma::fragment<wmma::matrix_a, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using RowMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using ColumnMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::col_major>;

template <int kHeadDim>
struct Shared {
  alignas(128) __half q[kBlockQ * kHeadDim];
  __half k[kBlockKv * kHeadDim], v[kBlockKv * kHeadDim];
  float scores[kBlockQ * kBlockKv];
  __half probabilities[kBlockQ * kBlockKv];
  float scratch[kWarps][kWmma * kWmma];  // per warp, to access the rows of a fragment
  float row_max[kBlockQ], row_sum[kBlockQ], row_rescale[kBlockQ];
};

// S = Q K^T: warp w owns the 16x16 tile (w / 2, w % 2).
template <int kHeadDim>
__device__ void compute_scores(Shared<kHeadDim>& smem, int warp) {
  const int row = warp / 2 * kWmma, key = warp % 2 * kWmma;
  Accumulator scores;
  wmma::fill_fragment(scores, 0.0F);
#pragma unroll 4  // registers
  for (int d = 0; d < kHeadDim; d += kWmma) {
    RowMajorA q;
    ColumnMajorB k;
    wmma::load_matrix_sync(q, smem.q + row * kHeadDim + d, kHeadDim);
    wmma::load_matrix_sync(k, smem.k + key * kHeadDim + d, kHeadDim);
    wmma::mma_sync(scores, q, k, scores);
  }
  wmma::store_matrix_sync(smem.scores + row * kBlockKv + key, scores, kBlockKv,
                          wmma::mem_row_major);
}

// Streaming softmax of one row by one thread, over its
// first `visible` keys; the others get an exact zero.
template <int kHeadDim>
__device__ void softmax_row(Shared<kHeadDim>& smem, int row, int visible, float scale_log2) {
  const float* scores = smem.scores + row * kBlockKv;
  const float old_max = smem.row_max[row];
  float row_max = old_max;
  for (int j = 0; j < visible; ++j) row_max = fmaxf(row_max, scores[j] * scale_log2);
  const float reference = finite_reference(row_max);
  const float rescale = ptx::exp2_approx(old_max - reference);
  float sum = smem.row_sum[row] * rescale;
  for (int j = 0; j < kBlockKv; ++j) {
    const float probability =
        j < visible ? ptx::exp2_approx(scores[j] * scale_log2 - reference) : 0.0F;
    sum += probability;
    smem.probabilities[row * kBlockKv + j] = __float2half(probability);
  }
  smem.row_max[row] = row_max;
  smem.row_sum[row] = sum;
  smem.row_rescale[row] = rescale;
}

// The product of P and V below in scalar code, for a tile of V with a NaN or Inf
// that only some rows may see: a row stops after its own `visible(row)` keys.
template <int kHeadDim, class Visible>
__device__ void add_by_scalar(const Shared<kHeadDim>& smem, float* scratch, int row, int column,
                              int lane, const Visible& visible) {
#pragma unroll 1
  for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
    const int r = row + e / kWmma, c = column + e % kWmma, keys = visible(r);
#pragma unroll 1
    for (int j = 0; j < keys; ++j) {
      scratch[e] += __half2float(smem.probabilities[r * kBlockKv + j]) *
                    __half2float(smem.v[j * kHeadDim + c]);
    }
  }
}

// O = O * rescale + P V for the 16x16 tile of O at (row, column).
template <int kHeadDim, class Visible>
__device__ void update_output(Shared<kHeadDim>& smem, Accumulator& output, int row, int column,
                              float* scratch, int lane, bool by_scalar, const Visible& visible) {
  wmma::store_matrix_sync(scratch, output, kWmma, wmma::mem_row_major);
  __syncwarp();
  for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
    scratch[e] *= smem.row_rescale[row + e / kWmma];
  }
  if (by_scalar) {
    add_by_scalar(smem, scratch, row, column, lane, visible);
  }
  __syncwarp();
  wmma::load_matrix_sync(output, scratch, kWmma, wmma::mem_row_major);
  if (by_scalar) return;
  for (int j = 0; j < kBlockKv; j += kWmma) {
    RowMajorA p;
    RowMajorB v;
    wmma::load_matrix_sync(p, smem.probabilities + row * kBlockKv + j, kBlockKv);
    wmma::load_matrix_sync(v, smem.v + j * kHeadDim + column, kHeadDim);
    wmma::mma_sync(output, p, v, output);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    wmma_pv_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<Shared<kHeadDim>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;
  const float scale_log2 = params.softmax_scale * kLog2E;

  constexpr int kFragments = kHeadDim / (kColumnWarps * kWmma);  // of the output, per warp
  const int output_row = warp / kColumnWarps * kWmma;
  const auto output_column = [&](int f) {
    return (f * kColumnWarps + warp % kColumnWarps) * kWmma;
  };
  Accumulator output[kFragments];
  for (Accumulator& fragment : output) wmma::fill_fragment(fragment, 0.0F);
  if (thread < kBlockQ) {
    smem.row_max[thread] = -std::numeric_limits<float>::infinity();
    smem.row_sum[thread] = 0;
  }
  load_tile<kThreads, kBlockQ, kHeadDim>(smem.q, head.q, params.q_stride.row, work.first_row,
                                         params.seqlen_q);

  for (int kv_first = 0; kv_first < work.kv_end; kv_first += kBlockKv) {
    const auto visible = [&](int row) {
      return visible_in_tile(params, work, row, kv_first, kBlockKv);
    };
    __syncthreads();  // the previous tile is no longer read
    load_tile<kThreads, kBlockKv, kHeadDim>(smem.k, head.k, params.k_stride.row, kv_first,
                                            work.kv_end);
    load_tile<kThreads, kBlockKv, kHeadDim>(smem.v, head.v, params.v_stride.row, kv_first,
                                            work.kv_end);
    __syncthreads();
    const bool by_scalar =
        on_diagonal(params, work, kv_first, kBlockKv) &&
        __syncthreads_or(any_nonfinite<kThreads, kBlockKv * kHeadDim>(smem.v, thread));
    if (warp < 4) compute_scores(smem, warp);
    __syncthreads();
    if (thread < kBlockQ) softmax_row(smem, thread, visible(thread), scale_log2);
    __syncthreads();
    for (int f = 0; f < kFragments; ++f) {
      update_output(smem, output[f], output_row, output_column(f), smem.scratch[warp], lane,
                    by_scalar, visible);
    }
  }

  __syncthreads();  // without any key tile: the row state has been written
  for (int f = 0; f < kFragments; ++f) {
    float* scratch = smem.scratch[warp];
    wmma::store_matrix_sync(scratch, output[f], kWmma, wmma::mem_row_major);
    __syncwarp();
    for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
      const int row = output_row + e / kWmma, q_row = work.first_row + row;
      if (q_row >= params.seqlen_q) break;
      head.o[q_row * params.o_stride.row + output_column(f) + e % kWmma] =
          __float2half(scratch[e] * inverse_or_zero(smem.row_sum[row]));
    }
    __syncwarp();
  }
  if (head.lse != nullptr && thread < kBlockQ && work.first_row + thread < params.seqlen_q) {
    head.lse[(work.first_row + thread) * params.lse_stride.row] =
        log_sum_exp(smem.row_max[thread], smem.row_sum[thread]);
  }
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads, Shared<64>, Shared<128>>(
      wmma_pv_kernel<64>, wmma_pv_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung04WmmaPv = {
    .name = "04_wmma_pv",
    .adds = "both products on WMMA, by store -> softmax -> rebuild through scratch per warp",
    .prediction = "scalar P V goes, the rebuild's shared-memory round trip comes: 1.5x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
