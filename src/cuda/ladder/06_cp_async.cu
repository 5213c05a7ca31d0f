// Rung 06, cp_async: K and V arrive by asynchronous 16-byte copies into a ring of 2 or 3 stages.
//
// Adds: the loads of later tiles are in flight while a tile is computed and bypass
// registers, and one barrier per tile is gone. The copy itself zero-fills tail rows.
//
//   per key tile:  wait K, V | issue tile + stages - 1 | S = Q K^T, store | softmax, P | O += P V
//                            ^ barrier                                    ^ barrier    ^ barrier
//
// Four configurations: 2 or 3 stages, with copies issued
// by all 8 warps or by a ninth that does nothing else.
//
// Layout: as in rung 05. Scores: warps 0 to 3 own 16 rows x 16 keys each. Softmax:
// a warp owns 4 rows, a lane one key. Output: 2 x 4 warps, each owns 16 rows and
// every fourth group of 16 columns. Tiles in shared memory are not swizzled, so
// the 8 rows that a fragment load reads at once lie in one bank group.
#include <mma.h>

#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWmma = 16;  // a WMMA tile is 16 x 16 x 16
constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8, kRowsPerWarp = kBlockQ / kWarps;
constexpr int kColumnWarps = 4;  // side by side over the output's columns

// The four ways to run the ring: with `kProducerWarp`, a ninth warp issues all copies.
template <bool kProducerWarp>
constexpr int kThreads = (kWarps + (kProducerWarp ? 1 : 0)) * kWarpSize;

using Accumulator = wmma::fragment<wmma::accumulator, kWmma, kWmma, kWmma, float>;
using RowMajorA = wmma::fragment<wmma::matrix_a, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using RowMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::row_major>;
using ColumnMajorB = wmma::fragment<wmma::matrix_b, kWmma, kWmma, kWmma, __half, wmma::col_major>;

template <int kHeadDim, int kStages>
struct Shared {
  alignas(128) __half q[kBlockQ * kHeadDim];
  __half k[kStages][kBlockKv * kHeadDim], v[kStages][kBlockKv * kHeadDim];
  float scores[kBlockQ * kBlockKv];
  __half probabilities[kBlockQ * kBlockKv];
  float scratch[kWarps][kWmma * kWmma];  // per warp, to access the rows of a fragment
  float row_sum[kBlockQ], row_rescale[kBlockQ];
};

// Issues the copies of rows [first_row, first_row + kRows) of a [*, kHeadDim] matrix. Rows at or
// past `end_row` are zero-filled; their copies name row 0 as the source and read nothing.
template <int kThreads, int kRows, int kHeadDim>
__device__ void copy_tile_async(__half* tile, const __half* matrix, int64_t row_stride,
                                int first_row, int end_row, int thread) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = thread; i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    const bool exists = first_row + row < end_row;
    const __half* source = matrix + (exists ? (first_row + row) * row_stride + column : 0);
    ptx::cp_async_16(tile + row * kHeadDim + column, source, exists);
  }
}

// S = Q K^T: warp w owns the 16x16 tile (w / 2, w % 2).
template <int kHeadDim, int kStages>
__device__ void compute_scores(Shared<kHeadDim, kStages>& smem, int stage, int warp) {
  const int row = warp / 2 * kWmma, key = warp % 2 * kWmma;
  Accumulator scores;
  wmma::fill_fragment(scores, 0.0F);
  for (int d = 0; d < kHeadDim; d += kWmma) {
    RowMajorA q;
    ColumnMajorB k;
    wmma::load_matrix_sync(q, smem.q + row * kHeadDim + d, kHeadDim);
    wmma::load_matrix_sync(k, smem.k[stage] + key * kHeadDim + d, kHeadDim);
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
template <int kHeadDim, int kStages>
__device__ void softmax_row(Shared<kHeadDim, kStages>& smem, RowState& state, int row, int visible,
                            int lane, float scale_log2) {
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
template <int kHeadDim, int kStages, class Visible>
__device__ void add_by_scalar(const Shared<kHeadDim, kStages>& smem, int stage, float* scratch,
                              int row, int column, int lane, const Visible& visible) {
#pragma unroll 1
  for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
    const int r = row + e / kWmma, c = column + e % kWmma, keys = visible(r);
#pragma unroll 1
    for (int j = 0; j < keys; ++j) {
      scratch[e] += __half2float(smem.probabilities[r * kBlockKv + j]) *
                    __half2float(smem.v[stage][j * kHeadDim + c]);
    }
  }
}

// O = O * rescale + P V for the 16x16 tile of O at (row, column).
template <int kHeadDim, int kStages, class Visible>
__device__ void update_output(Shared<kHeadDim, kStages>& smem, int stage, Accumulator& output,
                              int row, int column, float* scratch, int lane, bool by_scalar,
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
    wmma::load_matrix_sync(v, smem.v[stage] + j * kHeadDim + column, kHeadDim);
    wmma::mma_sync(output, p, v, output);
  }
}

template <int kHeadDim, int kStages, bool kProducerWarp>
__global__ void __launch_bounds__(kThreads<kProducerWarp>, kHeadDim == 64 && !kProducerWarp ? 3 : 2)
    cp_async_kernel(const __grid_constant__ RungParams params) {
  constexpr int kLoaders = kProducerWarp ? kWarpSize : kThreads<false>;
  auto& smem = shared_storage<Shared<kHeadDim, kStages>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const bool loads = !kProducerWarp || warp == kWarps;
  const bool computes = !kProducerWarp || warp < kWarps;
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
    if (!loads) return;
    if (tile < tiles) {
      copy_tile_async<kLoaders, kBlockKv, kHeadDim>(smem.k[tile % kStages], head.k,
                                                    params.k_stride.row, tile * kBlockKv,
                                                    work.kv_end, thread % kLoaders);
      copy_tile_async<kLoaders, kBlockKv, kHeadDim>(smem.v[tile % kStages], head.v,
                                                    params.v_stride.row, tile * kBlockKv,
                                                    work.kv_end, thread % kLoaders);
    }
    ptx::cp_async_commit();
  };
  if (loads) {  // Q is loaded with the first tile
    copy_tile_async<kLoaders, kBlockQ, kHeadDim>(
        smem.q, head.q, params.q_stride.row, work.first_row, params.seqlen_q, thread % kLoaders);
  }
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
        __syncthreads_or(
            any_nonfinite<kThreads<kProducerWarp>, kBlockKv * kHeadDim>(smem.v[stage], thread));
    if (warp < 4) compute_scores(smem, stage, warp);
    __syncthreads();
    for (int i = 0; computes && i < kRowsPerWarp; ++i) {
      const int row = warp * kRowsPerWarp + i;
      softmax_row(smem, rows[i], row, visible(row), lane, scale_log2);
    }
    __syncthreads();
    for (int f = 0; computes && f < kFragments; ++f) {
      update_output(smem, stage, output[f], output_row, output_column(f), smem.scratch[warp], lane,
                    by_scalar, visible);
    }
  }
  ptx::cp_async_wait<0>();  // without any key tile, Q is still in flight

  for (int i = 0; computes && i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i, q_row = work.first_row + row;
    if (lane != 0) continue;
    smem.row_sum[row] = rows[i].sum;
    if (head.lse != nullptr && q_row < params.seqlen_q) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(rows[i].max, rows[i].sum);
    }
  }
  __syncthreads();
  for (int f = 0; computes && f < kFragments; ++f) {
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

template <int kStages, bool kProducerWarp>
cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads<kProducerWarp>, Shared<64, kStages>,
                            Shared<128, kStages>>(cp_async_kernel<64, kStages, kProducerWarp>,
                                                  cp_async_kernel<128, kStages, kProducerWarp>,
                                                  params, stream);
}

template <int kStages, bool kProducerWarp>
consteval Rung entry(const char* name, const char* adds, const char* prediction) {
  return {
      .name = name,
      .adds = adds,
      .prediction = prediction,
      .input = RungInput::fp16,
      .min_compute_capability = 80,
      .max_compute_capability = 0,
      .workspace_bytes = no_workspace,
      .launch = launch<kStages, kProducerWarp>,
  };
}

}  // namespace

constinit const Rung kRung06CpAsync = entry<2, false>(
    "06_cp_async", "cp.async into a ring of 2 stages, issued by all warps",
    "3 or more blocks per SM already hide the loads; one barrier of four goes: 1.15x");
constinit const Rung kRung06CpAsyncS3 = entry<3, false>(
    "06_cp_async_s3", "the same with 3 stages",
    "a tile takes longer than a load, so a third stage has nothing to hide: 1.0x of 2 stages");
constinit const Rung kRung06CpAsyncS2Producer = entry<2, true>(
    "06_cp_async_s2_producer", "2 stages, copies issued by a ninth warp",
    "one warp issues what eight did, and block barriers still wait for it: 0.9x of 2 stages");
constinit const Rung kRung06CpAsyncS3Producer =
    entry<3, true>("06_cp_async_s3_producer", "3 stages, copies issued by a ninth warp",
                   "as with 2 stages: 0.9x of 2 stages");

}  // namespace flashcore::cuda::ladder
