// Rung 08, register_softmax: the score buffer is gone; the softmax runs on the accumulator fragments.
//
// Adds: tile/wmma_fragment.hpp defines the row and key of each (lane, register) of an
// accumulator, so a warp that owns 16 whole rows masks, reduces and rescales in registers: a row
// lies in four lanes. Only P passes through shared memory, as half, in the warp's own strip. The
// only remaining barrier is the ring's. The map is verified on the device before first use
// (wmma_probe.hpp).
//
//   per key tile:  wait K, V | issue next tile | S = Q K^T | softmax | P: store, load | O += P V
//                            ^ barrier           `---------- one warp, 16 rows, no barrier ------'
//
// Layout: 2 warps of 16 query rows each, all 32 keys and all columns of O. Q, K, V and P swizzled.
#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/swizzled_tile.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kBlockKv = 32, kWarps = 2, kBlockQ = kWarps * kWmma;
constexpr int kThreads = kWarps * kWarpSize, kStages = 2;
constexpr int kMinBlocks = 8;  // per SM: at most 128 registers per thread
constexpr int kKeyFragments = kBlockKv / kWmma;
constexpr int kStripBytes = 2 * kBlockKv;  // one row of P

template <int kHeadDim>
struct Shared {
  alignas(256) __half q[kBlockQ * kHeadDim];
  __half k[kStages][kBlockKv * kHeadDim], v[kStages][kBlockKv * kHeadDim];
  __half probabilities[kWarps][kWmma * kBlockKv];  // per warp
  float scratch[kWarps][kWmma * kWmma];            // per warp
  float row_inverse[kBlockQ];
};

// A lane's state of its two rows, by accumulator row
// slot. The maximum is the row's, the sum the lane's.
struct RowState {
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {};
};

// Calls visit(fragment, register) for every accumulator register of a lane.
template <int kFragments, class Visit>
__device__ void for_each_register(const Visit& visit) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int r = 0; r < tile::kWmmaAccumulatorRegisters; ++r) visit(f, r);
  }
}

// Reduces over the four lanes that hold a row.
template <class Combine>
__device__ float row_reduce(float x, const Combine& combine) {
  x = combine(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return combine(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

// S = Q K^T for the warp's 16 rows.
template <int kHeadDim>
__device__ void compute_scores(const Shared<kHeadDim>& smem, int stage, int warp, int lane,
                               Accumulator (&scores)[kKeyFragments]) {
  constexpr int kRowBytes = 2 * kHeadDim;
  for (Accumulator& fragment : scores) wmma::fill_fragment(fragment, 0.0F);
#pragma unroll 2
  for (int d = 0; d < kHeadDim; d += kWmma) {
    RowMajorA q;
    load_swizzled<kRowBytes>(q, smem.q, warp * kWmma, d, lane);
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f) {
      ColumnMajorB k;
      load_swizzled<kRowBytes>(k, smem.k[stage], f * kWmma, d, lane);
      wmma::mma_sync(scores[f], q, k, scores[f]);
    }
  }
}

// Selects -inf for the keys at or past visible[slot] of each row.
__device__ void mask_scores(Accumulator (&scores)[kKeyFragments], const int (&visible)[2],
                            int lane) {
  for_each_register<kKeyFragments>([&](int f, int r) {
    const int key = f * kWmma + tile::wmma_accumulator(lane, r).column;
    if (key >= visible[tile::wmma_accumulator_row_slot(r)]) {
      scores[f].x[r] = -std::numeric_limits<float>::infinity();
    }
  });
}

// Streaming softmax in registers: scores, in units of log2, become probabilities.
__device__ void softmax(Accumulator (&scores)[kKeyFragments], RowState& rows, float (&rescale)[2]) {
  float reference[2];
  float row_max[2] = {rows.max[0], rows.max[1]};
  for_each_register<kKeyFragments>([&](int f, int r) {
    float& largest = row_max[tile::wmma_accumulator_row_slot(r)];
    largest = fmaxf(largest, scores[f].x[r]);
  });
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    row_max[slot] = row_reduce(row_max[slot], [](float a, float b) { return fmaxf(a, b); });
    reference[slot] = finite_reference(row_max[slot]);
    rescale[slot] = ptx::exp2_approx(rows.max[slot] - reference[slot]);
    rows.sum[slot] *= rescale[slot];
    rows.max[slot] = row_max[slot];
  }
  for_each_register<kKeyFragments>([&](int f, int r) {
    const int slot = tile::wmma_accumulator_row_slot(r);
    scores[f].x[r] = ptx::exp2_approx(scores[f].x[r] - reference[slot]);
    rows.sum[slot] += scores[f].x[r];
  });
}

// Writes the warp's probabilities to its strip, two neighbouring keys at a time.
__device__ void store_probabilities(__half* strip,
                                    const Accumulator (&probabilities)[kKeyFragments], int lane) {
  const tile::Coord first = tile::wmma_accumulator(lane, 0);
  const int offset = tile::swizzle_offset<kStripBytes>(first.row, first.column);
  for_each_register<kKeyFragments>([&](int f, int r) {
    if (r % 2 != 0) return;
    const tile::Coord step = tile::wmma_accumulator(0, r);  // from the lane's first element
    const int pair = (offset ^ (f * kWmma + step.column)) + step.row * kBlockKv;
    *reinterpret_cast<__half2*>(strip + pair) =
        __floats2half2_rn(probabilities[f].x[r], probabilities[f].x[r + 1]);
  });
}

// O += P V for the warp's 16 rows.
template <int kHeadDim>
__device__ void accumulate_output(const Shared<kHeadDim>& smem, int stage, const __half* strip,
                                  int lane, Accumulator (&output)[kHeadDim / kWmma]) {
  constexpr int kUnroll = kHeadDim == 64 ? kKeyFragments : 1;  // registers
#pragma unroll kUnroll
  for (int j = 0; j < kBlockKv; j += kWmma) {
    RowMajorA p;
    load_swizzled<kStripBytes>(p, strip, 0, j, lane);
#pragma unroll
    for (int f = 0; f < kHeadDim / kWmma; ++f) {
      RowMajorB v;
      load_swizzled<2 * kHeadDim>(v, smem.v[stage], j, f * kWmma, lane);
      wmma::mma_sync(output[f], p, v, output[f]);
    }
  }
}

// O += P V in scalar code, for a tile of V with a NaN or Inf that only some
// rows may see: row r of the warp stops after its own `visible(r)` keys.
template <int kHeadDim, class Visible>
__device__ void accumulate_by_scalar(const __half* values, const __half* strip, float* scratch,
                                     int lane, const Visible& visible,
                                     Accumulator (&output)[kHeadDim / kWmma]) {
#pragma unroll
  for (int f = 0; f < kHeadDim / kWmma; ++f) {
    wmma::store_matrix_sync(scratch, output[f], kWmma, wmma::mem_row_major);
    __syncwarp();
#pragma unroll 1
    for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
      const int row = e / kWmma, column = f * kWmma + e % kWmma, keys = visible(row);
#pragma unroll 1
      for (int j = 0; j < keys; ++j) {
        scratch[e] += __half2float(strip[tile::swizzle_offset<kStripBytes>(row, j)]) *
                      __half2float(values[tile::swizzle_offset<2 * kHeadDim>(j, column)]);
      }
    }
    __syncwarp();
    wmma::load_matrix_sync(output[f], scratch, kWmma, wmma::mem_row_major);
    __syncwarp();
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    register_softmax_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<Shared<kHeadDim>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;
  const float scale_log2 = params.softmax_scale * kLog2E;

  constexpr int kFragments = kHeadDim / kWmma;                              // of the output
  const int lane_row = warp * kWmma + tile::wmma_accumulator(lane, 0).row;  // and lane_row + 8
  __half* strip = smem.probabilities[warp];
  Accumulator output[kFragments];
  for (Accumulator& fragment : output) wmma::fill_fragment(fragment, 0.0F);
  RowState rows;

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
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();  // this tile has landed, and the previous tile's stage is no longer read
    load(tile + kStages - 1);

    Accumulator scores[kKeyFragments];
    compute_scores(smem, stage, warp, lane, scores);
    for_each_register<kKeyFragments>([&](int f, int r) { scores[f].x[r] *= scale_log2; });

    if (kv_first + kBlockKv > visible_keys(params, work.first_row)) {
      const int visible[2] = {visible_in_tile(params, work, lane_row, kv_first, kBlockKv),
                              visible_in_tile(params, work, lane_row + 8, kv_first, kBlockKv)};
      mask_scores(scores, visible, lane);
    }
    float rescale[2];
    softmax(scores, rows, rescale);
    store_probabilities(strip, scores, lane);
    __syncwarp();
    for_each_register<kFragments>(
        [&](int f, int r) { output[f].x[r] *= rescale[tile::wmma_accumulator_row_slot(r)]; });
    if (on_diagonal(params, work, kv_first, kBlockKv) &&
        __any_sync(0xffffffffU,
                   any_nonfinite<kWarpSize, kBlockKv * kHeadDim>(smem.v[stage], lane))) {
      const auto visible_to = [&](int row) {
        return visible_in_tile(params, work, warp * kWmma + row, kv_first, kBlockKv);
      };
      accumulate_by_scalar<kHeadDim>(smem.v[stage], strip, smem.scratch[warp], lane, visible_to,
                                     output);
    } else {
      accumulate_output(smem, stage, strip, lane, output);
    }
  }
  ptx::cp_async_wait<0>();  // without any key tile, Q is still in flight

  float inverse[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float sum = row_reduce(rows.sum[slot], [](float a, float b) { return a + b; });
    inverse[slot] = inverse_or_zero(sum);
    const int q_row = work.first_row + lane_row + 8 * slot;
    if (head.lse != nullptr && lane % 4 == 0 && q_row < params.seqlen_q) {
      head.lse[q_row * params.lse_stride.row] = log_sum_exp(rows.max[slot], sum);
    }
  }

  // O goes through shared memory as floats, where it is normalised and stored element by element.
  if (lane % 4 == 0) {
    smem.row_inverse[lane_row] = inverse[0];
    smem.row_inverse[lane_row + 8] = inverse[1];
  }
  for (int f = 0; f < kFragments; ++f) {
    float* scratch = smem.scratch[warp];
    wmma::store_matrix_sync(scratch, output[f], kWmma, wmma::mem_row_major);
    __syncwarp();
    for (int e = lane; e < kWmma * kWmma; e += kWarpSize) {
      const int row = warp * kWmma + e / kWmma, q_row = work.first_row + row;
      if (q_row >= params.seqlen_q) break;
      head.o[q_row * params.o_stride.row + f * kWmma + e % kWmma] =
          __float2half(scratch[e] * smem.row_inverse[row]);
    }
    __syncwarp();
  }
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads, Shared<64>, Shared<128>>(
      register_softmax_kernel<64>, register_softmax_kernel<128>, params, stream);
}

}  // namespace

const Rung kRung08RegisterSoftmax = {
    .name = "08_register_softmax",
    .adds = "softmax on the accumulator fragments; the score buffer and its barriers are gone",
    .prediction = "3 barriers and 2 shared round trips per tile become one short one: 1.6x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
