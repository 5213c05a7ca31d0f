// Rung 03, vector_pv: P V still scalar, but two keys and two columns at a time.
//
// Adds: V is read as half2 (two columns per lane) and P as float2
// (two keys), which halves the shared-memory instructions of P V.
//
//   per key tile:  load K, V | scores S = Q K^T | softmax, S becomes P | O = O * rescale + P V
//                            ^ barrier          ^ barrier              ^ barrier     barrier ^
//
// Layout: 8 warps. Scores: warps 0 to 3 own 16 rows x 16 keys each. Softmax: one thread per row.
// Output: a warp owns 4 rows, a lane every 32nd pair of columns, in registers. Tiles in shared
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

// output += probability * (one row of V), two columns per lane.
template <int kPairs>
__device__ void add_value_row(float2 (&output)[kPairs], float probability, const __half* value_row,
                              int lane) {
  for (int c = 0; c < kPairs; ++c) {
    const float2 value =
        __half22float2(reinterpret_cast<const __half2*>(value_row)[c * kWarpSize + lane]);
    output[c].x += probability * value.x;
    output[c].y += probability * value.y;
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    vector_pv_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<Shared<kHeadDim>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;
  const float scale_log2 = params.softmax_scale * kLog2E;

  constexpr int kPairs = kHeadDim / (2 * kWarpSize);  // of output columns, per thread
  float2 output[kRowsPerWarp][kPairs] = {};
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
      const float rescale = smem.row_rescale[row];
      for (int c = 0; c < kPairs; ++c) {
        output[i][c] = make_float2(output[i][c].x * rescale, output[i][c].y * rescale);
      }
      const float* probability = smem.scores + row * kBlockKv;
      int j = 0;
      for (; j + 1 < visible; j += 2) {
        const float2 pair = *reinterpret_cast<const float2*>(probability + j);
        add_value_row(output[i], pair.x, smem.v + j * kHeadDim, lane);
        add_value_row(output[i], pair.y, smem.v + (j + 1) * kHeadDim, lane);
      }
      if (j < visible) add_value_row(output[i], probability[j], smem.v + j * kHeadDim, lane);
    }
  }

  __syncthreads();  // without any key tile: the row state has been written
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i, q_row = work.first_row + row;
    if (q_row >= params.seqlen_q) break;
    const float inverse = inverse_or_zero(smem.row_sum[row]);
    for (int c = 0; c < kPairs; ++c) {
      *reinterpret_cast<__half2*>(head.o + q_row * params.o_stride.row +
                                  2 * (c * kWarpSize + lane)) =
          __floats2half2_rn(output[i][c].x * inverse, output[i][c].y * inverse);
    }
    if (head.lse != nullptr && lane == 0) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(smem.row_max[row], smem.row_sum[row]);
    }
  }
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads, Shared<64>, Shared<128>>(
      vector_pv_kernel<64>, vector_pv_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung03VectorPv = {
    .name = "03_vector_pv",
    .adds = "P V reads V as half2 and P as float2",
    .prediction = "half the loads of P V, the arithmetic stays: 1.2x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
