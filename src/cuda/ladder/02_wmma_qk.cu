// Rung 02, wmma_qk: the scores on the Tensor Cores, P V still scalar.
//
// Adds: Q K^T as four 16x16 WMMA tiles, one for each of the first four warps.
// The layout of fragments is unspecified, so the scores go through shared memory
// to the softmax. WMMA requires sizes at compile time; with the head dimension
// among them, the output moves into registers and loads are 16 bytes wide.
//
//   per key tile:  load K, V | scores S = Q K^T | softmax, S becomes P | O = O * rescale + P V
//                            ^ barrier          ^ barrier              ^ barrier     barrier ^
//
// Layout: 8 warps. Scores: warps 0 to 3 own 16 rows x 16 keys each. Softmax: one thread per row.
// Output: a warp owns 4 rows, a lane every 32nd column, in registers. Tiles in shared memory are
// not swizzled, so the 8 rows that a fragment load reads at once lie in one bank group.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWmma = 16;  // a WMMA tile is 16 x 16 x 16
constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize, kRowsPerWarp = kBlockQ / kWarps;

template <int kHeadDim>
struct Shared {
  alignas(128) __half q[kBlockQ * kHeadDim];
  __half k[kBlockKv * kHeadDim], v[kBlockKv * kHeadDim];
  float scores[kBlockQ * kBlockKv];  // scores, then probabilities
  float row_max[kBlockQ], row_sum[kBlockQ], row_rescale[kBlockQ];
};

// S = Q K^T: warp w owns the 16x16 tile (w / 2, w % 2).
template <int kHeadDim>
__device__ void compute_scores(Shared<kHeadDim>& smem, int warp) {
  const int row = warp / 2 * kWmma, key = warp % 2 * kWmma;
  wmma::fragment<wmma::accumulator, kWmma, kWmma, kWmma, float> scores;
  wmma::fill_fragment(scores, 0.0F);
  for (int d = 0; d < kHeadDim; d += kWmma) {
    wmma::fragment<wmma::matrix_a, kWmma, kWmma, kWmma, __half, wmma::row_major> q;
    wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::col_major> k;
    wmma::load_matrix_sync(q, smem.q + row * kHeadDim + d, kHeadDim);
    wmma::load_matrix_sync(k, smem.k + key * kHeadDim + d, kHeadDim);
    wmma::mma_sync(scores, q, k, scores);
  }
  wmma::store_matrix_sync(smem.scores + row * kBlockKv + key, scores, kBlockKv,
                          wmma::mem_row_major);
}

// Streaming softmax of one row by one thread, over its first `visible` keys.
template <int kHeadDim>
__device__ void softmax_row(Shared<kHeadDim>& smem, int row, int visible, float scale_log2) {
  float* scores = smem.scores + row * kBlockKv;
  const float old_max = smem.row_max[row];
  float row_max = old_max;
  for (int j = 0; j < visible; ++j) row_max = fmaxf(row_max, scores[j] * scale_log2);
  const float reference = finite_reference(row_max);
  const float rescale = ptx::exp2_approx(old_max - reference);
  float sum = smem.row_sum[row] * rescale;
  for (int j = 0; j < visible; ++j) {
    scores[j] = ptx::exp2_approx(scores[j] * scale_log2 - reference);
    sum += scores[j];
  }
  smem.row_max[row] = row_max;
  smem.row_sum[row] = sum;
  smem.row_rescale[row] = rescale;
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    wmma_qk_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<Shared<kHeadDim>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;
  const float scale_log2 = params.softmax_scale * kLog2E;

  constexpr int kColumns = kHeadDim / kWarpSize;  // of the output, per thread
  float output[kRowsPerWarp][kColumns] = {};
  if (thread < kBlockQ) {
    smem.row_max[thread] = -std::numeric_limits<float>::infinity();
    smem.row_sum[thread] = 0;
  }
  load_tile<kThreads, kBlockQ, kHeadDim>(smem.q, head.q, params.q_stride.row, work.first_row,
                                         params.seqlen_q);

  for (int kv_first = 0; kv_first < work.kv_end; kv_first += kBlockKv) {
    __syncthreads();  // the previous tile is no longer read
    load_tile<kThreads, kBlockKv, kHeadDim>(smem.k, head.k, params.k_stride.row, kv_first,
                                            work.kv_end);
    load_tile<kThreads, kBlockKv, kHeadDim>(smem.v, head.v, params.v_stride.row, kv_first,
                                            work.kv_end);
    __syncthreads();
    if (warp < 4) compute_scores(smem, warp);
    __syncthreads();
    if (thread < kBlockQ) {
      const int visible = visible_in_tile(params, work, thread, kv_first, kBlockKv);
      softmax_row(smem, thread, visible, scale_log2);
    }
    __syncthreads();
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int row = warp * kRowsPerWarp + i;
      const int visible = visible_in_tile(params, work, row, kv_first, kBlockKv);
      for (int c = 0; c < kColumns; ++c) output[i][c] *= smem.row_rescale[row];
      for (int j = 0; j < visible; ++j) {
        const float probability = smem.scores[row * kBlockKv + j];
        for (int c = 0; c < kColumns; ++c) {
          output[i][c] += probability * __half2float(smem.v[j * kHeadDim + c * kWarpSize + lane]);
        }
      }
    }
  }

  __syncthreads();  // without any key tile: the row state has been written
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i, q_row = work.first_row + row;
    if (q_row >= params.seqlen_q) break;
    const float inverse = inverse_or_zero(smem.row_sum[row]);
    for (int c = 0; c < kColumns; ++c) {
      head.o[q_row * params.o_stride.row + c * kWarpSize + lane] =
          __float2half(output[i][c] * inverse);
    }
    if (head.lse != nullptr && lane == 0) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(smem.row_max[row], smem.row_sum[row]);
    }
  }
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads, Shared<64>, Shared<128>>(
      wmma_qk_kernel<64>, wmma_qk_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung02WmmaQk = {
    .name = "02_wmma_qk",
    .adds = "Tensor Cores (WMMA) for Q K^T; P V stays scalar",
    .prediction = "the scalar scores were most of 01: 3x faster (100 us)",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
