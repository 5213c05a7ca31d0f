// Rung 01, scalar: one fused kernel with a streaming softmax, every product by scalar arithmetic.
//
// Adds: the S x S matrix is gone. A block keeps 32 query rows and walks the keys 32 at a
// time; each row has a running maximum m and sum l, and the accumulated output is rescaled
// when m grows. This is the algorithm in its plainest form: the head dimension is a run-time
// number, and everything that a thread does not use up at once is in shared memory.
//
//   per key tile:  load K, V | scores S = Q K^T | softmax, S becomes P | O = O * rescale + P V
//                            ^ barrier          ^ barrier              ^ barrier     barrier ^
//
// Layout: 8 warps. Scores: a warp owns 4 rows, a lane one key. Softmax: one thread per
// row. Output: a warp owns 4 rows, a lane every 32nd column. Tiles in shared memory
// are not swizzled, so 32 lanes that read 32 keys at one depth access the same bank.
#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kBlockQ = 32, kBlockKv = 32, kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize, kRowsPerWarp = kBlockQ / kWarps;

// Views of the block's shared memory; tiles are row-major.
struct Shared {
  float* output;  // [kBlockQ][head_dim]
  float* scores;  // [kBlockQ][kBlockKv], then probabilities
  float *row_max, *row_sum, *row_rescale;
  __half *q, *k, *v;

  static constexpr size_t bytes(int head_dim) {
    return sizeof(float) * (kBlockQ * head_dim + kBlockQ * kBlockKv + 3 * kBlockQ) +
           sizeof(__half) * (kBlockQ + 2 * kBlockKv) * head_dim;
  }

  __device__ Shared(float* storage, int head_dim)
      : output(storage),
        scores(output + kBlockQ * head_dim),
        row_max(scores + kBlockQ * kBlockKv),
        row_sum(row_max + kBlockQ),
        row_rescale(row_sum + kBlockQ),
        q(reinterpret_cast<__half*>(row_rescale + kBlockQ)),
        k(q + kBlockQ * head_dim),
        v(k + kBlockKv * head_dim) {}
};

// Copies rows [first_row, first_row + rows) of a matrix; rows at or past `end_row` become zero.
__device__ void load_rows(__half* tile, const __half* matrix, int64_t row_stride, int first_row,
                          int rows, int end_row, int head_dim) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * head_dim; i += kThreads) {
    const int row = first_row + i / head_dim, column = i % head_dim;
    tile[i] = row < end_row ? matrix[row * row_stride + column] : __half{};
  }
}

// S = Q K^T: a warp owns 4 rows, a lane one key.
__device__ void compute_scores(const Shared& smem, int head_dim, int warp, int lane) {
  for (int row = warp * kRowsPerWarp; row < (warp + 1) * kRowsPerWarp; ++row) {
    float sum = 0;
    for (int d = 0; d < head_dim; ++d) {
      sum += __half2float(smem.q[row * head_dim + d]) * __half2float(smem.k[lane * head_dim + d]);
    }
    smem.scores[row * kBlockKv + lane] = sum;
  }
}

// Streaming softmax of one row by one thread, over its first `visible` keys.
__device__ void softmax_row(const Shared& smem, int row, int visible, float scale_log2) {
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

// O = O * rescale + P V for one row, over its first `visible` keys.
__device__ void update_output_row(const Shared& smem, int head_dim, int row, int visible,
                                  int lane) {
  for (int column = lane; column < head_dim; column += kWarpSize) {
    float& output = smem.output[row * head_dim + column];
    output *= smem.row_rescale[row];
    for (int j = 0; j < visible; ++j) {
      output += smem.scores[row * kBlockKv + j] * __half2float(smem.v[j * head_dim + column]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    scalar_kernel(const __grid_constant__ RungParams params) {
  const int head_dim = params.head_dim;
  const Shared smem(&shared_storage<float>(), head_dim);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;
  const float scale_log2 = params.softmax_scale * kLog2E;

  for (int i = thread; i < kBlockQ * head_dim; i += kThreads) smem.output[i] = 0;
  if (thread < kBlockQ) {
    smem.row_max[thread] = -std::numeric_limits<float>::infinity();
    smem.row_sum[thread] = 0;
  }
  load_rows(smem.q, head.q, params.q_stride.row, work.first_row, kBlockQ, params.seqlen_q,
            head_dim);

  for (int kv_first = 0; kv_first < work.kv_end; kv_first += kBlockKv) {
    const auto visible = [&](int row) {
      return visible_in_tile(params, work, row, kv_first, kBlockKv);
    };
    __syncthreads();  // the previous tile is no longer read
    load_rows(smem.k, head.k, params.k_stride.row, kv_first, kBlockKv, work.kv_end, head_dim);
    load_rows(smem.v, head.v, params.v_stride.row, kv_first, kBlockKv, work.kv_end, head_dim);
    __syncthreads();
    compute_scores(smem, head_dim, warp, lane);
    __syncthreads();
    if (thread < kBlockQ) softmax_row(smem, thread, visible(thread), scale_log2);
    __syncthreads();
    for (int row = warp * kRowsPerWarp; row < (warp + 1) * kRowsPerWarp; ++row) {
      update_output_row(smem, head_dim, row, visible(row), lane);
    }
  }

  __syncthreads();  // without any key tile: the row state has been written
  for (int row = warp * kRowsPerWarp; row < (warp + 1) * kRowsPerWarp; ++row) {
    const int q_row = work.first_row + row;
    if (q_row >= params.seqlen_q) break;
    const float inverse = inverse_or_zero(smem.row_sum[row]);
    for (int column = lane; column < head_dim; column += kWarpSize) {
      head.o[q_row * params.o_stride.row + column] =
          __float2half(smem.output[row * head_dim + column] * inverse);
    }
    if (head.lse != nullptr && lane == 0) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(smem.row_max[row], smem.row_sum[row]);
    }
  }
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  if (params.head_dim != 64 && params.head_dim != 128) return cudaErrorInvalidValue;
  return launch_blocks(scalar_kernel, query_tiles(params, kBlockQ), kThreads,
                       Shared::bytes(params.head_dim), stream, clamped(params));
}

}  // namespace

const Rung kRung01Scalar = {
    .name = "01_scalar",
    .adds = "one fused kernel with a streaming softmax; all products by scalar arithmetic",
    .prediction =
        "no S x S traffic, but scalar loads from one bank and no Tensor Core: 15x slower than 00",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
