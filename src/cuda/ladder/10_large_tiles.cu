// Rung 10, large_tiles: 64 or 128 query rows per block, 64 keys per tile.
//
// Adds: more warps share every K and V tile (a 32-row block reads all keys from L2 for 32
// rows, a 128-row block for 128), and a tile has twice the keys, so that waits, reductions and
// rescales happen half as often. A tile entirely inside the sequence is copied without bounds
// tests. At head dimension 64, Q stays in registers. A warp skips tiles that none of its rows
// may see. At head dimension 128, the output alone takes 64 registers, which leaves room for
// 32 keys per tile. Both block heights are entries of the table; 64 rows is the rung's own.
//
//   per key tile:  wait K, V | issue next tile | S = Q K^T | softmax | P: store, load | O += P V
//                            ^ barrier           `---------- one warp, 16 rows, no barrier ------'
//   at the end:    O / sum in registers | half, to the warp's rows of Q | 16-byte stores
//
// Layout: 4 or 8 warps of 16 query rows each (warp_rows.cuh), all keys of the tile and all columns
// of O. Q, K, V, P and O swizzled.
#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/warp_rows.cuh"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kStages = 2;

template <int kHeadDim>
constexpr int kBlockKv = kHeadDim == 64 ? 64 : 32;

template <int kBlockQ>
constexpr int kThreads = kBlockQ / kWmma* kWarpSize;

template <int kHeadDim>
using Rows = WarpRows<kHeadDim, kBlockKv<kHeadDim>>;

template <int kHeadDim, int kBlockQ>
struct Shared {
  static constexpr int kWarps = kBlockQ / kWmma;
  alignas(256) __half q[kBlockQ * kHeadDim];
  __half k[kStages][kBlockKv<kHeadDim> * kHeadDim], v[kStages][kBlockKv<kHeadDim> * kHeadDim];
  __half strips[kWarps][Rows<kHeadDim>::kStripHalves];
  float scratch[kWarps][Rows<kHeadDim>::kScratchFloats];
};

template <int kHeadDim, int kBlockQ>
__global__ void __launch_bounds__(kThreads<kBlockQ>, 512 / kThreads<kBlockQ>)
    large_tiles_kernel(const __grid_constant__ RungParams params) {
  constexpr int kKeys = kBlockKv<kHeadDim>;
  auto& smem = shared_storage<Shared<kHeadDim, kBlockQ>>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize;
  const QueryTileWork work = query_tile_work(params, kBlockQ);
  const Head& head = work.head;

  // One group of copies per tile, empty past the last one so that the groups keep counting tiles.
  const int tiles = ceil_div(work.kv_end, kKeys);
  const auto load = [&](int tile) {
    if (tile < tiles) {
      copy_tile_fast_async<kThreads<kBlockQ>, kKeys, kHeadDim>(
          smem.k[tile % kStages], head.k, params.k_stride.row, tile * kKeys, work.kv_end, thread);
      copy_tile_fast_async<kThreads<kBlockQ>, kKeys, kHeadDim>(
          smem.v[tile % kStages], head.v, params.v_stride.row, tile * kKeys, work.kv_end, thread);
    }
    ptx::cp_async_commit();
  };
  // Q is loaded with the first tile.
  copy_tile_fast_async<kThreads<kBlockQ>, kBlockQ, kHeadDim>(
      smem.q, head.q, params.q_stride.row, work.first_row, params.seqlen_q, thread);
  for (int tile = 0; tile < kStages - 1; ++tile) load(tile);

  const int first_row = work.first_row + warp * kWmma;
  const int last_row = min(first_row + kWmma, params.seqlen_q) - 1;
  const int warp_tiles = ceil_div(visible_keys(params, last_row), kKeys);
  Rows<kHeadDim> rows(smem.q + warp * kWmma * kHeadDim, smem.strips[warp], smem.scratch[warp]);
  rows.begin(params, first_row);

  for (int tile = 0; tile < tiles; ++tile) {
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();  // this tile has landed, and the previous tile's stage is no longer read
    load(tile + kStages - 1);
    if (tile == 0) rows.load_queries();
    if (tile < warp_tiles) {
      rows.step(params, smem.k[tile % kStages], smem.v[tile % kStages], tile * kKeys, work.kv_end);
    }
  }
  ptx::cp_async_wait<0>();  // without any key tile, Q is still in flight, and its rows are reused
  __syncthreads();
  rows.store(params, head);
}

template <int kBlockQ>
cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  return launch_by_head_dim<kBlockQ, kThreads<kBlockQ>, Shared<64, kBlockQ>, Shared<128, kBlockQ>>(
      large_tiles_kernel<64, kBlockQ>, large_tiles_kernel<128, kBlockQ>, params, stream);
}

template <int kBlockQ>
consteval Rung entry(const char* name, const char* adds, const char* prediction) {
  return {
      .name = name,
      .adds = adds,
      .prediction = prediction,
      .input = RungInput::fp16,
      .min_compute_capability = 80,
      .max_compute_capability = 0,
      .workspace_bytes = no_workspace,
      .launch = launch<kBlockQ>,
  };
}

}  // namespace

constinit const Rung kRung10LargeTiles =
    entry<64>("10_large_tiles",
              "64 query rows per block, 64 keys per tile, Q in registers at head dimension 64",
              "half the waits, half the L2 reads: 1.2x at (1,8,512,64)");
constinit const Rung kRung10LargeTilesQ128 =
    entry<128>("10_large_tiles_q128", "the same with 128 query rows per block",
               "a quarter of the L2 reads of 09: 1.5x of it at long keys");

}  // namespace flashcore::cuda::ladder
