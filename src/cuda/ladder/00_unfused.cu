// Rung 00, unfused: the baseline that fusion has to
// beat. Three kernels, with the S x S matrix in memory.
//
//   scores_kernel   S = Q K^T                fp32, to the workspace   WMMA, 64 x 64 of S per block
//   softmax_kernel  P = softmax(scale * S)   fp16, to the workspace   one warp per row
//   values_kernel   O = P V                  fp16                     WMMA, 64 rows of O per block
//
// Layout of the workspace: S, then P, each [batch * heads][rows][keys], with
// rows and keys rounded up to 64, so that no tile of either needs a guard. Tiles
// of S and P entirely above the causal diagonal are neither computed nor read.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/unfused_matrices.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWmma = 16;  // a WMMA tile is 16 x 16 x 16
constexpr int kBlock = kUnfusedBlock, kWarps = 4, kThreads = kWarps * kWarpSize;
constexpr int kFragments = kBlock / kWmma;  // along one side of a block's tile

using Accumulator = wmma::fragment<wmma::accumulator, kWmma, kWmma, kWmma, float>;
using RowMajorA = wmma::fragment<wmma::matrix_a, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using RowMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using ColumnMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::col_major>;

// The two matrices in the workspace.
struct Matrices {
  int64_t rows, keys, elements;
  float* scores;
  __half* probabilities;
};

__device__ Matrices matrices_of(const RungParams& params) {
  const UnfusedSizes sizes = unfused_sizes(params);
  auto* scores = static_cast<float*>(params.workspace);
  return {sizes.rows, sizes.keys, sizes.elements, scores,
          reinterpret_cast<__half*>(scores + sizes.elements)};
}

template <int kHeadDim>
struct ScoresShared {
  alignas(128) __half q[kBlock * kHeadDim];
  __half k[kBlock * kHeadDim];
};

// A block computes one 64 x 64 tile of S, each warp 16 rows of it.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    scores_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<ScoresShared<kHeadDim>>();
  const Matrices matrices = matrices_of(params);
  const int kv_tiles = static_cast<int>(matrices.keys / kBlock);
  const int q_tiles = static_cast<int>(matrices.rows / kBlock);
  const int64_t q_index = blockIdx.x / kv_tiles, batch_head = q_index / q_tiles;
  const int q_tile = static_cast<int>(q_index % q_tiles);
  const int kv_first = static_cast<int>(blockIdx.x % kv_tiles) * kBlock;
  const QueryTileWork work = query_tile_work(params, batch_head, q_tile, kBlock);
  if (kv_first >= work.kv_end) return;

  load_tile<kThreads, kBlock, kHeadDim>(smem.q, work.head.q, params.q_stride.row, work.first_row,
                                        params.seqlen_q);
  load_tile<kThreads, kBlock, kHeadDim>(smem.k, work.head.k, params.k_stride.row, kv_first,
                                        work.kv_end);
  __syncthreads();

  const int row = static_cast<int>(threadIdx.x) / kWarpSize * kWmma;
  Accumulator scores[kFragments];
  for (Accumulator& fragment : scores) wmma::fill_fragment(fragment, 0.0F);
  for (int d = 0; d < kHeadDim; d += kWmma) {
    RowMajorA q;
    wmma::load_matrix_sync(q, smem.q + row * kHeadDim + d, kHeadDim);
    for (int f = 0; f < kFragments; ++f) {
      ColumnMajorB k;
      wmma::load_matrix_sync(k, smem.k + f * kWmma * kHeadDim + d, kHeadDim);
      wmma::mma_sync(scores[f], q, k, scores[f]);
    }
  }
  const int64_t s_row = batch_head * matrices.rows + work.first_row + row;
  for (int f = 0; f < kFragments; ++f) {
    wmma::store_matrix_sync(matrices.scores + s_row * matrices.keys + kv_first + f * kWmma,
                            scores[f], static_cast<unsigned>(matrices.keys), wmma::mem_row_major);
  }
}

template <class Combine>
__device__ float warp_reduce(float x, const Combine& combine) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  }
  return x;
}

// One warp per row, including padding rows, which become zero. P is zero from the
// row's last visible key to the end of the last tile that values_kernel reads.
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const __grid_constant__ RungParams params) {
  const Matrices matrices = matrices_of(params);
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t batch_head = index / matrices.rows;
  const int row = static_cast<int>(index % matrices.rows);
  const bool exists = row < params.seqlen_q;
  const int visible = exists ? visible_keys(params, row) : 0;
  const QueryTileWork work = query_tile_work(params, batch_head, row / kBlock, kBlock);
  const float* scores = matrices.scores + index * matrices.keys;
  __half* probabilities = matrices.probabilities + index * matrices.keys;
  const float scale_log2 = params.softmax_scale * kLog2E;

  float row_max = -std::numeric_limits<float>::infinity(), sum = 0;
  for (int j = lane; j < visible; j += kWarpSize) row_max = fmaxf(row_max, scores[j] * scale_log2);
  row_max = warp_reduce(row_max, [](float a, float b) { return fmaxf(a, b); });
  const float reference = finite_reference(row_max);
  for (int j = lane; j < visible; j += kWarpSize) {
    sum += ptx::exp2_approx(scores[j] * scale_log2 - reference);
  }
  sum = warp_reduce(sum, [](float a, float b) { return a + b; });
  const float inverse = inverse_or_zero(sum);
  for (int j = lane; j < ceil_div(work.kv_end, kBlock) * kBlock; j += kWarpSize) {
    const float probability =
        j < visible ? ptx::exp2_approx(scores[j] * scale_log2 - reference) * inverse : 0.0F;
    probabilities[j] = __float2half(probability);
  }
  if (work.head.lse != nullptr && exists && lane == 0) {
    work.head.lse[row * params.lse_stride.row] = log_sum_exp(row_max, sum);
  }
}

template <int kHeadDim>
struct ValuesShared {
  alignas(128) __half v[kBlock * kHeadDim];
  float output[kBlock * kHeadDim];
};

// A block computes 64 rows of O, each warp 16 of them.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    values_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<ValuesShared<kHeadDim>>();
  const Matrices matrices = matrices_of(params);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t batch_head = blockIdx.x / (matrices.rows / kBlock);
  const QueryTileWork work = query_tile_work(params, kBlock);
  const __half* probabilities =
      matrices.probabilities + (batch_head * matrices.rows + work.first_row) * matrices.keys;
  const int row = thread / kWarpSize * kWmma;

  Accumulator output[kHeadDim / kWmma];
  for (Accumulator& fragment : output) wmma::fill_fragment(fragment, 0.0F);
  const auto store_output = [&] {
    for (int f = 0; f < kHeadDim / kWmma; ++f) {
      wmma::store_matrix_sync(smem.output + row * kHeadDim + f * kWmma, output[f], kHeadDim,
                              wmma::mem_row_major);
    }
    __syncthreads();
  };

  for (int kv_first = 0; kv_first < work.kv_end; kv_first += kBlock) {
    __syncthreads();  // the previous tile is no longer read
    load_tile<kThreads, kBlock, kHeadDim>(smem.v, work.head.v, params.v_stride.row, kv_first,
                                          work.kv_end);
    __syncthreads();
    if (on_diagonal(params, work, kv_first, kBlock) &&
        __syncthreads_or(any_nonfinite<kThreads, kBlock * kHeadDim>(smem.v, thread))) {
      store_output();
#pragma unroll 1
      for (int e = thread; e < kBlock * kHeadDim; e += kThreads) {
        const int r = e / kHeadDim, c = e % kHeadDim;
        const int visible = visible_in_tile(params, work, r, kv_first, kBlock);
#pragma unroll 1
        for (int j = 0; j < visible; ++j) {
          smem.output[e] += __half2float(probabilities[r * matrices.keys + kv_first + j]) *
                            __half2float(smem.v[j * kHeadDim + c]);
        }
      }
      __syncthreads();
      for (int f = 0; f < kHeadDim / kWmma; ++f) {
        wmma::load_matrix_sync(output[f], smem.output + row * kHeadDim + f * kWmma, kHeadDim,
                               wmma::mem_row_major);
      }
      continue;
    }
    for (int j = 0; j < kBlock; j += kWmma) {
      RowMajorA p;
      wmma::load_matrix_sync(p, probabilities + row * matrices.keys + kv_first + j,
                             static_cast<unsigned>(matrices.keys));
      for (int f = 0; f < kHeadDim / kWmma; ++f) {
        RowMajorB v;
        wmma::load_matrix_sync(v, smem.v + j * kHeadDim + f * kWmma, kHeadDim);
        wmma::mma_sync(output[f], p, v, output[f]);
      }
    }
  }
  store_output();
  for (int e = thread; e < kBlock * kHeadDim; e += kThreads) {
    const int q_row = work.first_row + e / kHeadDim;
    if (q_row >= params.seqlen_q) break;
    work.head.o[q_row * params.o_stride.row + e % kHeadDim] = __float2half(smem.output[e]);
  }
}

template <int kHeadDim>
cudaError_t launch_three(const RungParams& params, cudaStream_t stream) {
  const int64_t q_tiles = query_tiles(params, kBlock);
  const int64_t kv_tiles = ceil_div(params.seqlen_kv, kBlock);
  cudaError_t error = launch_blocks(scores_kernel<kHeadDim>, q_tiles * kv_tiles, kThreads,
                                    sizeof(ScoresShared<kHeadDim>), stream, params);
  if (error != cudaSuccess) return error;
  error = launch_blocks(softmax_kernel, q_tiles * (kBlock / kWarps), kThreads, 0, stream, params);
  if (error != cudaSuccess) return error;
  return launch_blocks(values_kernel<kHeadDim>, q_tiles, kThreads, sizeof(ValuesShared<kHeadDim>),
                       stream, params);
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_three<64>(clamped(params), stream);
    case 128:
      return launch_three<128>(clamped(params), stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const Rung kRung00Unfused = {
    .name = "00_unfused",
    .adds = "WMMA Q K^T, a softmax kernel, WMMA P V; the S x S matrix in memory",
    .prediction = "three launches and 38 MB through L2 at (1,8,512,64): 20 us",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = unfused_workspace_bytes,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
