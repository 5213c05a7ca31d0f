// Rung 12, mma_sync: WMMA is gone. Fragments come by ldmatrix, products are mma.sync m16n8k16, and
// P turns from accumulator into operand inside its registers.
//
// A block owns 16 query rows a warp and walks the keys 64 at a time, left to right, so that the
// tiles a mask cuts come last:
//
//   tile j  : | wait K, V | S = Q K^T | (mask) | softmax, O *= r | O += P V |
//   tile j+1:             | copy K, V ----------------------------------------->
//
// Each warp holds S (16 x 64) and O (16 x head_dim) as m16n8 accumulators: a row lies in one quad,
// and the packed scores are the next product's A operand. Q stays in registers at head_dim 64 and
// is read again for every tile at 128, where O takes the registers. Shared memory: Q, and two
// stages of K and V, all SmemTiles. The warp's own rows of Q become the staging buffer of its rows
// of O.
#include "cuda/attention/quad_softmax.cuh"
#include "cuda/attention/value_guard.cuh"
#include "cuda/ladder/register_epilogue.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/tile_place.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/tile/async_copy.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kStages = 2;
constexpr int kWarpRows = 16;

template <int kHeadDim_, int kWarps_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_, kWarps = kWarps_;
  static constexpr int kBlockQ = kWarpRows * kWarps, kThreads = kWarpSize * kWarps;
  static constexpr int kBlocksPerSm = 16 / kWarps;  // 512 threads an SM leave each 128 registers
  static constexpr bool kQInRegisters = kHeadDim == 64;
  static constexpr int kBlockKv = kHeadDim == 64 ? 64 : 32;  // S shares the registers with O
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    unsigned char k[kStages][KvTile::kBytes], v[kStages][KvTile::kBytes];
  };
};

// Where this lane's ldmatrix rows start: Q as A, K as B with its keys as columns, V as B
// transposed.
template <class C>
struct LaneOffsets {
  uint32_t q, k, v;
  __device__ LaneOffsets(int warp, int lane)
      : q(C::QTile::chunk_offset(warp * kWarpRows + lane % 16, lane / 16)),
        k(C::KvTile::chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2)),
        v(C::KvTile::chunk_offset(lane % 16, lane / 16)) {}
};

template <class C>
__device__ __forceinline__ uint32_t tile_row_bytes(int rows) {
  return static_cast<uint32_t>(rows * C::KvTile::kPanelRowBytes);
}

// S = Q K^T for this warp's 16 rows and block_kv keys.
template <class C, int kQSteps>
__device__ __forceinline__ void compute_scores(float (&s)[C::kBlockKv / 8][4],
                                               uint32_t (&q_regs)[kQSteps][4], uint32_t q_lane,
                                               uint32_t k_lane) {
#pragma unroll
  for (int n = 0; n < C::kBlockKv / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
  }
#pragma unroll
  for (int step = 0; step < C::kHeadDim / 16; ++step) {
    uint32_t(&q)[4] = q_regs[C::kQInRegisters ? step : 0];
    if (!C::kQInRegisters) ptx::ldmatrix_x4(q, C::QTile::template advance<2>(q_lane, step));
#pragma unroll
    for (int n16 = 0; n16 < C::kBlockKv / 16; ++n16) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k,
                       C::KvTile::template advance<2>(k_lane, step) + tile_row_bytes<C>(16 * n16));
      ptx::mma_m16n8k16_f16(s[2 * n16], q, k[0], k[1]);
      ptx::mma_m16n8k16_f16(s[2 * n16 + 1], q, k[2], k[3]);
    }
  }
}

// O += P V. Two neighbouring accumulators of P, packed, are the A operand of 16 keys.
template <class C>
__device__ __forceinline__ void accumulate_output(float (&o)[C::kHeadDim / 8][4],
                                                  const float (&p)[C::kBlockKv / 8][4],
                                                  uint32_t v_lane) {
#pragma unroll
  for (int step = 0; step < C::kBlockKv / 16; ++step) {
    const float(&left)[4] = p[2 * step];
    const float(&right)[4] = p[2 * step + 1];
    const uint32_t a[4] = {ptx::pack_f16x2(left[0], left[1]), ptx::pack_f16x2(left[2], left[3]),
                           ptx::pack_f16x2(right[0], right[1]),
                           ptx::pack_f16x2(right[2], right[3])};
#pragma unroll
    for (int d16 = 0; d16 < C::kHeadDim / 16; ++d16) {
      uint32_t v[4];
      ptx::ldmatrix_x4_trans(
          v, C::KvTile::template advance<2>(v_lane, d16) + tile_row_bytes<C>(16 * step));
      ptx::mma_m16n8k16_f16(o[2 * d16], a, v[0], v[1]);
      ptx::mma_m16n8k16_f16(o[2 * d16 + 1], a, v[2], v[3]);
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocksPerSm)
    mma_sync_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<typename C::Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;

  const TilePlace place = longest_first_place(params, C::kBlockQ);
  const KeyTiles tiles = key_tiles(params, place.first_row, C::kBlockQ, C::kBlockKv);
  const float scale_log2 = positive_scale_log2(params);

  const auto rows_of = [&](const void* tensor, const Strides& stride, int row) {
    return static_cast<const __half*>(tensor) + place.at(stride, row);
  };
  tile::RowCopier<typename C::KvTile, C::kThreads> copy_k(rows_of(params.k, params.k_stride, 0),
                                                          params.k_stride.row * 2, thread);
  tile::RowCopier<typename C::KvTile, C::kThreads> copy_v(rows_of(params.v, params.v_stride, 0),
                                                          params.v_stride.row * 2, thread);
  const auto copy_kv = [&](int tile) {
    const int left = tiles.kv_end - tile * C::kBlockKv;
    copy_k.copy(smem.k[tile % kStages], params.k_stride.row * 2, left, thread);
    copy_v.copy(smem.v[tile % kStages], params.v_stride.row * 2, left, thread);
    ptx::cp_async_commit();
  };

  const LaneOffsets<C> offsets(warp, lane);
  const uint32_t q_lane = ptx::shared_address(smem.q) + offsets.q;
  uint32_t q_regs[C::kQInRegisters ? C::kHeadDim / 16 : 1][4];
  float o[C::kHeadDim / 8][4] = {};
  attention::QuadRows rows;
  bool repair = false;  // NaN or Inf was taken out of a tile that the mask cuts

  if (tiles.count > 0) {
    tile::RowCopier<typename C::QTile, C::kThreads> copy_q(
        rows_of(params.q, params.q_stride, place.first_row), params.q_stride.row * 2, thread);
    copy_q.copy(smem.q, params.q_stride.row * 2, params.seqlen_q - place.first_row, thread);
    ptx::cp_async_commit();
    copy_kv(0);
    ptx::cp_async_wait<1>();
    __syncthreads();
    if (params.softmax_scale < 0) {
      attention::flip_signs<attention::kHalfSigns>(smem.q, C::QTile::kBytes, thread, C::kThreads);
      __syncthreads();
    }
    if constexpr (C::kQInRegisters) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i) {
        ptx::ldmatrix_x4(q_regs[i], C::QTile::template advance<2>(q_lane, i));
      }
    }
  }

  for (int tile = 0; tile < tiles.count; ++tile) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nobody reads the stage before any more
    if (tile + 1 < tiles.count) copy_kv(tile + 1);

    unsigned char *k = smem.k[tile % kStages], *v = smem.v[tile % kStages];
    const bool masked = tile >= tiles.whole;
    if (masked) {
      repair |= attention::zero_nonfinite<attention::HalfValues, C::KvTile::kBytes>(v, thread,
                                                                                    C::kThreads);
      __syncthreads();
    }
    float s[C::kBlockKv / 8][4], rescale[2];
    compute_scores<C>(s, q_regs, q_lane, ptx::shared_address(k) + offsets.k);
    if (masked) {
      const int key = tile * C::kBlockKv, row = place.first_row + warp * kWarpRows + lane / 4;
      attention::mask_columns(
          s, lane, {visible_keys(params, row) - key, visible_keys(params, row + 8) - key});
    }
    attention::online_softmax(s, rows, rescale, scale_log2);
    attention::rescale_rows(o, rescale);
    accumulate_output<C>(o, s, ptx::shared_address(v) + offsets.v);
  }

  Finish finish;
  if (__syncthreads_or(repair)) finish.repair_from = tiles.whole * C::kBlockKv;
  store_rows<typename C::QTile, attention::HalfValues>(params, place, smem.q, warp * kWarpRows,
                                                       lane, o, rows, finish);
}

template <class C>
cudaError_t launch_config(const RungParams& params, cudaStream_t stream) {
  return launch_blocks(mma_sync_kernel<C>, query_tiles(params, C::kBlockQ), C::kThreads,
                       sizeof(typename C::Shared), stream, clamped(params));
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_config<Config<64, 4>>(params, stream);
    case 128:
      return launch_config<Config<128, 8>>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const Rung kRung12MmaSync = {
    .name = "12_mma_sync",
    .adds = "ldmatrix and mma.sync m16n8k16 instead of WMMA; P never leaves registers",
    .prediction =
        "shared-memory traffic is K and V fragments alone: 7.5 us on (1,8,512,64), 60 us on long",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
