// Rung 05, warp_softmax: row maxima and sums by warp shuffles.
//
// Adds: a warp owns 4 rows of the softmax and a lane one key, instead of one thread per row: all 256
// threads work, neighbouring lanes read neighbouring scores, and the row state stays in registers.
//
//   per key tile:  load K, V | S = Q K^T, store | softmax, P | O: store, rescale, rebuild; O += P V
//                            ^ barrier          ^ barrier    ^ barrier                    barrier ^
//
// Layout: 8 warps. Scores: warps 0 to 3 own 16 rows x 16 keys each. Softmax: a
// warp owns 4 rows, a lane one key. Output: 2 x 4 warps, each owns 16 rows and
// every fourth group of 16 columns. Tiles in shared memory are not swizzled,
// so the 8 rows that a fragment load reads at once lie in one bank group.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWmma = 16;  // a WMMA tile is 16 x 16 x 16
constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize, kRowsPerWarp = kBlockQ / kWarps;  // rows: of softmax
constexpr int kColumnWarps = 4;  // side by side over the output's columns
// Blocks per SM: at most 80 registers per thread, which ptxas for sm_89 does not achieve at 128.
template <int kHeadDim>
constexpr int kMinBlocks = kHeadDim == 64 ? 3 : 2;

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
  float row_sum[kBlockQ], row_rescale[kBlockQ];
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

template <class Combine>
__device__ float warp_reduce(float x, const Combine& combine) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  }
  return x;
}

// A row's softmax state between tiles; every lane of the row's warp holds a copy.
struct RowState {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
};

// Streaming softmax of one row by one warp, one lane per key, over
// the row's first `visible` keys; the others get an exact zero.
template <int kHeadDim>
__device__ void softmax_row(Shared<kHeadDim>& smem, RowState& state, int row, int visible, int lane,
                            float scale_log2) {
  static_assert(kBlockKv == kWarpSize);
  const float score = lane < visible ? smem.scores[row * kBlockKv + lane] * scale_log2
                                     : -std::numeric_limits<float>::infinity();
  const float old_max = state.max;
  const auto larger = [](float a, float b) { return fmaxf(a, b); };
  state.max = fmaxf(old_max, warp_reduce(score, larger));
  const float reference = finite_reference(state.max);
  const float rescale = ptx::exp2_approx(old_max - reference);
  const float probability = ptx::exp2_approx(score - reference);
  const auto plus = [](float a, float b) { return a + b; };
  state.sum = state.sum * rescale + warp_reduce(probability, plus);
  smem.probabilities[row * kBlockKv + lane] = __float2half(probability);
  if (lane == 0) smem.row_rescale[row] = rescale;
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
__global__ void __launch_bounds__(kThreads, kMinBlocks<kHeadDim>)
    warp_softmax_kernel(const __grid_constant__ RungParams params) {
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
  RowState rows[kRowsPerWarp];
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
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int row = warp * kRowsPerWarp + i;
      softmax_row(smem, rows[i], row, visible(row), lane, scale_log2);
    }
    __syncthreads();
    for (int f = 0; f < kFragments; ++f) {
      update_output(smem, output[f], output_row, output_column(f), smem.scratch[warp], lane,
                    by_scalar, visible);
    }
  }

  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i, q_row = work.first_row + row;
    if (lane != 0) continue;
    smem.row_sum[row] = rows[i].sum;
    if (head.lse != nullptr && q_row < params.seqlen_q) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(rows[i].max, rows[i].sum);
    }
  }
  __syncthreads();
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
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads, Shared<64>, Shared<128>>(
      warp_softmax_kernel<64>, warp_softmax_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung05WarpSoftmax = {
    .name = "05_warp_softmax",
    .adds = "row maxima and sums by warp shuffles instead of one thread a row",
    .prediction = "the serial softmax was over half of 04: 2x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
