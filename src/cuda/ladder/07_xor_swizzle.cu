// Rung 07, xor_swizzle: a conflict-free shared layout for Q, K and V.
//
// Adds: chunk c of row r is stored at chunk c ^ (r % 8), so the 8 rows that a
// fragment load reads at once lie in 8 different bank groups instead of one.
// wmma::load_matrix_sync cannot read that layout; ldmatrix can (swizzled_tile.cuh).
//
//   per key tile:  wait K, V | issue next tile | S = Q K^T, store | softmax, P | O += P V
//                            ^ barrier                            ^ barrier    ^ barrier
//
// Layout: as in rung 06, with its ring of 2 stages filled by all warps. Scores:
// warps 0 to 3 own 16 rows x 16 keys each. Softmax: a warp owns 4 rows, a lane one
// key. Output: 2 x 4 warps, each owns 16 rows and every fourth group of 16 columns.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/swizzled_tile.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8, kRowsPerWarp = kBlockQ / kWarps;
constexpr int kThreads = kWarps * kWarpSize, kStages = 2;
constexpr int kColumnWarps = 4;  // side by side over the output's columns

template <int kHeadDim>
struct Shared {
  alignas(256) __half q[kBlockQ * kHeadDim];
  __half k[kStages][kBlockKv * kHeadDim], v[kStages][kBlockKv * kHeadDim];
  float scores[kBlockQ * kBlockKv];
  __half probabilities[kBlockQ * kBlockKv];
  float scratch[kWarps][kWmma * kWmma];  // per warp, to access the rows of a fragment
  float row_sum[kBlockQ], row_rescale[kBlockQ];
};

// S = Q K^T: warp w owns the 16x16 tile (w / 2, w % 2).
template <int kHeadDim>
__device__ void compute_scores(Shared<kHeadDim>& smem, int stage, int warp, int lane) {
  constexpr int kRowBytes = 2 * kHeadDim;
  const int row = warp / 2 * kWmma, key = warp % 2 * kWmma;
  Accumulator scores;
  wmma::fill_fragment(scores, 0.0F);
  for (int d = 0; d < kHeadDim; d += kWmma) {
    RowMajorA q;
    ColumnMajorB k;
    load_swizzled<kRowBytes>(q, smem.q, row, d, lane);
    load_swizzled<kRowBytes>(k, smem.k[stage], key, d, lane);
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
__device__ void add_by_scalar(const Shared<kHeadDim>& smem, int stage, float* scratch, int row,
                              int column, int lane, const Visible& visible) {
#pragma unroll 1
  for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
    const int r = row + e / kWmma, c = column + e % kWmma, keys = visible(r);
#pragma unroll 1
    for (int j = 0; j < keys; ++j) {
      scratch[e] += __half2float(smem.probabilities[r * kBlockKv + j]) *
                    __half2float(smem.v[stage][tile::swizzle_offset<2 * kHeadDim>(j, c)]);
    }
  }
}

// O = O * rescale + P V for the 16x16 tile of O at (row, column).
template <int kHeadDim, class Visible>
__device__ void update_output(Shared<kHeadDim>& smem, int stage, Accumulator& output, int row,
                              int column, float* scratch, int lane, bool by_scalar,
                              const Visible& visible) {
  wmma::store_matrix_sync(scratch, output, kWmma, wmma::mem_row_major);
  __syncwarp();
  for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
    scratch[e] *= smem.row_rescale[row + e / kWmma];
  }
  if (by_scalar) {
    add_by_scalar(smem, stage, scratch, row, column, lane, visible);
  }
  __syncwarp();
  wmma::load_matrix_sync(output, scratch, kWmma, wmma::mem_row_major);
  if (by_scalar) return;
  for (int j = 0; j < kBlockKv; j += kWmma) {
    RowMajorA p;
    RowMajorB v;
    wmma::load_matrix_sync(p, smem.probabilities + row * kBlockKv + j, kBlockKv);
    load_swizzled<2 * kHeadDim>(v, smem.v[stage], j, column, lane);
    wmma::mma_sync(output, p, v, output);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kHeadDim == 64 ? 3 : 2)
    xor_swizzle_kernel(const __grid_constant__ RungParams params) {
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

  // One group of copies per tile, empty past the last one so that the groups keep counting tiles.
  const int tiles = ceil_div(work.kv_end, kBlockKv);
  const auto load = [&](int tile) {
    if (tile < tiles) {
      copy_tile_async<kThreads, kBlockKv, kHeadDim>(smem.k[tile % kStages], head.k,
                                                    params.k_stride.row, tile * kBlockKv,
                                                    work.kv_end, thread);
      copy_tile_async<kThreads, kBlockKv, kHeadDim>(smem.v[tile % kStages], head.v,
                                                    params.v_stride.row, tile * kBlockKv,
                                                    work.kv_end, thread);
    }
    ptx::cp_async_commit();
  };
  // Q is loaded with the first tile.
  copy_tile_async<kThreads, kBlockQ, kHeadDim>(smem.q, head.q, params.q_stride.row, work.first_row,
                                               params.seqlen_q, thread);
  for (int tile = 0; tile < kStages - 1; ++tile) load(tile);

  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages, kv_first = tile * kBlockKv;
    const auto visible = [&](int row) {
      return visible_in_tile(params, work, row, kv_first, kBlockKv);
    };
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();  // this tile has landed, and the previous tile's stage is no longer read
    load(tile + kStages - 1);
    const bool by_scalar =
        on_diagonal(params, work, kv_first, kBlockKv) &&
        __syncthreads_or(any_nonfinite<kThreads, kBlockKv * kHeadDim>(smem.v[stage], thread));
    if (warp < 4) compute_scores(smem, stage, warp, lane);
    __syncthreads();
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int row = warp * kRowsPerWarp + i;
      softmax_row(smem, rows[i], row, visible(row), lane, scale_log2);
    }
    __syncthreads();
    for (int f = 0; f < kFragments; ++f) {
      update_output(smem, stage, output[f], output_row, output_column(f), smem.scratch[warp], lane,
                    by_scalar, visible);
    }
  }
  ptx::cp_async_wait<0>();  // without any key tile, Q is still in flight

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
      xor_swizzle_kernel<64>, xor_swizzle_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung07XorSwizzle = {
    .name = "07_xor_swizzle",
    .adds = "XOR-swizzled shared layout for Q, K and V, read by ldmatrix without conflicts",
    .prediction = "a fragment load takes 4 cycles instead of 32, latency stays: 1.2x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
