// Rung 12, mma_sync: WMMA is gone. Fragments are loaded by ldmatrix, products are
// mma.sync m16n8k16, and P is converted from accumulator to operand in registers.
//
// A block walks the keys 64 at a time, left to right, so that masked tiles come last:
//
//   tile j  : | wait K, V | S = Q K^T | (mask) | softmax | O += P V | next kStepKeys keys ... |
//   tile j+1:             | copy K, V ------------------------------------------------------->
//
// Each warp owns 16 query rows and holds Q, O and a step's S as fragments: a row lies in
// one quad, and the packed scores are the next product's A operand. At head_dim 64, a step
// is the whole tile; at 128, O (64 registers) and Q (32) leave S 16 keys. Both fit 128
// registers, hence 16 warps per SM. The softmax is lazy (quad_rows.cuh): no shuffles and
// no rescaling while the maximum hardly changes, which makes a step of 16 keys affordable.
//
// Shared memory: Q, and two stages of K and V, all SmemTiles. A warp's own rows of Q become
// the staging buffer of its rows of O. Shared memory is the bottleneck: a K or V fragment
// of 512 bytes, 4 cycles of one SM, feeds two products of 6 cycles on a quarter of one SM.
#include "cuda/ladder/quad_rows.cuh"
#include "cuda/ladder/register_epilogue.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/tile_place.cuh"
#include "cuda/ladder/value_guard.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special.cuh"
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
  static constexpr int kBlocksPerSm = 16 / kWarps;  // 512 threads per SM leave each 128 registers
  static constexpr int kBlockKv = 64;
  static constexpr int kStepKeys = kHeadDim == 64 ? 64 : 16;  // S shares the registers with O
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    unsigned char k[kStages][KvTile::kBytes], v[kStages][KvTile::kBytes];
    BlockWork work;
  };
};

template <class C>
__device__ __forceinline__ uint32_t tile_row_bytes(int rows) {
  return static_cast<uint32_t>(rows * C::KvTile::kPanelRowBytes);
}

// Read again for each use, rather than kept across the main loop.
__device__ __forceinline__ int lane_index() { return ptx::thread_index() % kWarpSize; }
__device__ __forceinline__ int warp_row() { return ptx::thread_index() / kWarpSize * kWarpRows; }

// S = Q K^T for this warp's 16 rows and kStepKeys keys.
template <class C>
__device__ __forceinline__ void compute_scores(float (&s)[C::kStepKeys / 8][4],
                                               const uint32_t (&q)[C::kHeadDim / 16][4],
                                               uint32_t k_lane) {
#pragma unroll
  for (int n = 0; n < C::kStepKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
  }
#pragma unroll
  for (int step = 0; step < C::kHeadDim / 16; ++step) {
#pragma unroll
    for (int n16 = 0; n16 < C::kStepKeys / 16; ++n16) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k,
                       C::KvTile::template advance<2>(k_lane, step) + tile_row_bytes<C>(16 * n16));
      ptx::mma_m16n8k16_f16(s[2 * n16], q[step], k[0], k[1]);
      ptx::mma_m16n8k16_f16(s[2 * n16 + 1], q[step], k[2], k[3]);
    }
  }
}

// O += P V. Two neighbouring accumulators of P, packed, are the A operand for 16 keys.
template <class C>
__device__ __forceinline__ void accumulate_output(float (&o)[C::kHeadDim / 8][4],
                                                  const float (&p)[C::kStepKeys / 8][4],
                                                  uint32_t v_lane) {
#pragma unroll
  for (int step = 0; step < C::kStepKeys / 16; ++step) {
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
  BlockWork& work = smem.work;
  if (thread == 0) set_block_work<__half>(work, params, C::kBlockQ, C::kBlockKv);
  __syncthreads();

  const auto copy_kv = [&](int tile) {
    tile::copy_rows_async<typename C::KvTile, C::kThreads>(
        smem.k[tile % kStages], work.k, params.k_stride.row * 2, tile * C::kBlockKv,
        work.tiles.kv_end, ptx::thread_index());
    tile::copy_rows_async<typename C::KvTile, C::kThreads>(
        smem.v[tile % kStages], work.v, params.v_stride.row * 2, tile * C::kBlockKv,
        work.tiles.kv_end, ptx::thread_index());
    ptx::cp_async_commit();
  };

  // The start of this lane's ldmatrix rows: K as B with its keys as columns, V as B
  // transposed, and Q as A, with the same rows as V's 16, from the warp's first row on.
  const uint32_t k_lane = C::KvTile::chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t v_lane = C::KvTile::chunk_offset(lane % 16, lane / 16);
  const uint32_t q_lane =
      ptx::shared_address(smem.q) + v_lane + tile_row_bytes<C>(warp * kWarpRows);
  uint32_t q[C::kHeadDim / 16][4];
  float o[C::kHeadDim / 8][4] = {};
  QuadRows rows;

  if (work.tiles.count > 0) {
    tile::copy_rows_async<typename C::QTile, C::kThreads>(
        smem.q, work.q, params.q_stride.row * 2, work.place.first_row, params.seqlen_q, thread);
    ptx::cp_async_commit();
    copy_kv(0);
    ptx::cp_async_wait<1>();
    __syncthreads();
    if (work.flip_q) {
      flip_signs<kHalfSigns>(smem.q, C::QTile::kBytes, thread, C::kThreads);
      __syncthreads();
    }
#pragma unroll
    for (int step = 0; step < C::kHeadDim / 16; ++step) {
      ptx::ldmatrix_x4(q[step], C::QTile::template advance<2>(q_lane, step));
    }
  }

  for (int tile = 0; tile < work.tiles.count; ++tile) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nothing reads the stage before any more
    if (tile + 1 < work.tiles.count) copy_kv(tile + 1);

    unsigned char *k = smem.k[tile % kStages], *v = smem.v[tile % kStages];
    const bool masked = tile >= work.tiles.whole;
    if (masked) {
      const bool found =
          zero_nonfinite<HalfValues, C::KvTile::kBytes>(v, ptx::thread_index(), C::kThreads);
      if (__syncthreads_or(found) && ptx::thread_index() == 0) work.repair = true;
    }
#pragma unroll 1
    for (int key = 0; key < C::kBlockKv; key += C::kStepKeys) {
      float s[C::kStepKeys / 8][4];
      compute_scores<C>(s, q, ptx::shared_address(k) + k_lane + tile_row_bytes<C>(key));
      if (masked) {
        const int first_key = tile * C::kBlockKv + key;
        const int row = work.place.first_row + warp_row() + lane_index() / 4;
        mask_columns(
            s, lane_index(),
            {visible_keys(params, row) - first_key, visible_keys(params, row + 8) - first_key});
      }
      lazy_softmax(s, o, rows, work.scale_log2);
      accumulate_output<C>(o, s, ptx::shared_address(v) + v_lane + tile_row_bytes<C>(key));
    }
  }

  __syncthreads();
  Finish finish;
  if (work.repair) finish.repair_from = work.tiles.whole * C::kBlockKv;
  store_rows<typename C::QTile, HalfValues>(params, work.place, smem.q, warp_row(), lane_index(), o,
                                            rows, finish);
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
