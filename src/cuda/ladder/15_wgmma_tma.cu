// Rung 15, wgmma_tma: Hopper's own instructions. One warp loads whole tiles by TMA, one
// warpgroup multiplies directly from shared memory by wgmma, and mbarriers synchronise them.
//
//   producer  Q, K0, V0, K1, V1, ...  each into the next slot of one ring, when the slot is empty
//   consumer  | S = Q K^T | free K | (mask) softmax, O *= r, pack P | O += P V | free V | next tile
//
// A block owns 64 query rows and processes 128 keys at a time. The products of one warpgroup
// wait for its softmax and vice versa; two blocks per SM fill each other's gaps. Therefore
// the kernel uses 160 threads of up to 200 registers rather than a split by setmaxnreg.
//
// Q and K are K-major operands, V is MN-major, all in tiles of 128-byte panels as TMA's 128-byte
// swizzle writes them (tile/smem_tile.hpp, tile/descriptor.hpp). P is the A operand from registers.
// S and O are m16n8 accumulators of each warp, so softmax and epilogue are rung 12's.
#include "cuda/host/tensor_map.hpp"
#include "cuda/ladder/quad_rows.cuh"
#include "cuda/ladder/register_epilogue.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/tile_place.cuh"
#include "cuda/ladder/value_guard.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kBlockQ = 64, kBlockKv = 128;
constexpr int kConsumerThreads = 128;  // warps 0 to 3, one warpgroup
[[maybe_unused]] constexpr int kConsumerWarps = kConsumerThreads / kWarpSize;
constexpr int kThreads = kConsumerThreads + kWarpSize;  // plus the producer, warp 4
[[maybe_unused]] constexpr int kConsumerBarrier = 1;

template <int kHeadDim_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kBlocksPerSm = kHeadDim == 64 ? 3 : 2;
  static constexpr int kSlots = kHeadDim == 64 ? 4 : 3;  // as many as those blocks have room for
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];  // at the end: staging of O
    unsigned char slot[kSlots][KvTile::kBytes];
    uint64_t q_full, full[kSlots], empty[kSlots];
  };
};

struct Maps {
  CUtensorMap q, k, v;
};

// A ring position: slot and the parity of its current round.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Copies all panels of a tile whose first row is `row`.
template <class Tile>
__device__ __forceinline__ void load_tile(const unsigned char* shared, const CUtensorMap& map,
                                          uint64_t& full, const TilePlace& place, int row) {
  const uint32_t barrier = ptx::shared_address(&full);
  ptx::mbarrier_arrive_expect(barrier, Tile::kBytes);
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    ptx::tma_load_4d(ptx::shared_address(shared) + panel * Tile::kPanelBytes, &map, barrier,
                     panel * Tile::kPanelColumns, row, place.head, place.batch);
  }
}

// The producer: called by one lane.
template <class C>
__device__ __forceinline__ void produce(typename C::Shared& smem, const Maps& maps,
                                        const TilePlace& place, int tiles) {
  load_tile<typename C::QTile>(smem.q, maps.q, smem.q_full, place, place.first_row);
  RingPosition<C::kSlots> at;
  for (int i = 0; i < 2 * tiles; ++i) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.empty[at.slot]), at.parity ^ 1);
    load_tile<typename C::KvTile>(smem.slot[at.slot], i % 2 == 0 ? maps.k : maps.v,
                                  smem.full[at.slot], place, i / 2 * kBlockKv);
    at.next();
  }
}

// S = Q K^T, complete on return.
template <class C>
__device__ __forceinline__ void compute_scores(float (&s)[kBlockKv / 8][4], uint32_t q,
                                               uint32_t k) {
  using ptx::Accumulate, ptx::Major;
  ptx::warpgroup_pin(s);
  ptx::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < C::kHeadDim / 16; ++step) {
    const uint64_t a = tile::k_major_descriptor<typename C::QTile>(q, 0, step);
    const uint64_t b = tile::k_major_descriptor<typename C::KvTile>(k, 0, step);
    if (step == 0) {
      ptx::wgmma_ss_f16<Accumulate::overwrite, Major::k>(s, a, b);
    } else {
      ptx::wgmma_ss_f16<Accumulate::add, Major::k>(s, a, b);
    }
  }
  ptx::warpgroup_commit();
  ptx::warpgroup_wait<0>();
  ptx::warpgroup_pin(s);
}

// O += P V, complete on return.
template <class C>
__device__ __forceinline__ void accumulate_output(float (&o)[C::kHeadDim / 8][4],
                                                  const uint32_t (&p)[kBlockKv / 16][4],
                                                  uint32_t v) {
  using ptx::Accumulate, ptx::Major;
  ptx::warpgroup_pin(o);
  ptx::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < kBlockKv / 16; ++step) {
    ptx::wgmma_rs_f16<Accumulate::add, Major::mn>(
        o, p[step], tile::mn_major_descriptor<typename C::KvTile>(v, step));
  }
  ptx::warpgroup_commit();
  ptx::warpgroup_wait<0>();
  ptx::warpgroup_pin(o);
}

// P as A operands of 16 keys each: two neighbouring accumulators, packed.
[[maybe_unused]] __device__ __forceinline__ void pack_operand(uint32_t (&p)[kBlockKv / 16][4],
                                                              const float (&s)[kBlockKv / 8][4]) {
#pragma unroll
  for (int i = 0; i < kBlockKv / 4; ++i) {
    p[i / 4][i % 4] = ptx::pack_f16x2(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
  }
}

// The consumer: called by the whole warpgroup.
template <class C>
__device__ __forceinline__ void consume(const RungParams& params, typename C::Shared& smem,
                                        const TilePlace& place, const KeyTiles& tiles, int thread) {
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const float scale_log2 = positive_scale_log2(params);
  float o[C::kHeadDim / 8][4] = {};
  QuadRows rows;
  bool repair = false;  // NaN or Inf was removed from a masked tile

  if (tiles.count > 0) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.q_full), 0);
    if (params.softmax_scale < 0) {
      flip_signs<kHalfSigns>(smem.q, C::QTile::kBytes, thread, kConsumerThreads);
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(kConsumerBarrier, kConsumerThreads);
    }
  }
  RingPosition<C::kSlots> at;
  const auto wait_full = [&] {
    ptx::mbarrier_wait(ptx::shared_address(&smem.full[at.slot]), at.parity);
  };
  const auto release = [&] {
    if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&smem.empty[at.slot]));
    at.next();
  };
  for (int tile = 0; tile < tiles.count; ++tile) {
    const bool masked = tile >= tiles.whole;
    float s[kBlockKv / 8][4], rescale[2];
    wait_full();
    compute_scores<C>(s, ptx::shared_address(smem.q), ptx::shared_address(smem.slot[at.slot]));
    release();
    if (masked) {
      const int key = tile * kBlockKv, row = place.first_row + warp * 16 + lane / 4;
      mask_columns(s, lane, {visible_keys(params, row) - key, visible_keys(params, row + 8) - key});
    }
    online_softmax(s, rows, rescale, scale_log2);
    attention::rescale_rows(o, rescale);
    uint32_t p[kBlockKv / 16][4];
    pack_operand(p, s);
    wait_full();
    if (masked) {
      repair |= zero_nonfinite<HalfValues, C::KvTile::kBytes>(smem.slot[at.slot], thread,
                                                              kConsumerThreads);
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(kConsumerBarrier, kConsumerThreads);
    }
    accumulate_output<C>(o, p, ptx::shared_address(smem.slot[at.slot]));
    release();
  }

  Finish finish;
  // The barrier also ensures that all four warps are done with Q, which becomes the staging tile.
  if (ptx::named_barrier_or(kConsumerBarrier, kConsumerThreads, repair)) {
    finish.repair_from = tiles.whole * kBlockKv;
  }
  store_rows<typename C::QTile, HalfValues>(params, place, smem.q, warp * 16, lane, o, rows,
                                            finish);
}

template <class C>
__device__ __forceinline__ void attend(const Maps& maps, const RungParams& params) {
  auto& smem = shared_storage<typename C::Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const TilePlace place = longest_first_place(params, kBlockQ);
  const KeyTiles tiles = key_tiles(params, place.first_row, kBlockQ, kBlockKv);

  if (thread == kConsumerThreads) {
    ptx::mbarrier_init(ptx::shared_address(&smem.q_full), 1);
    for (int slot = 0; slot < C::kSlots; ++slot) {
      ptx::mbarrier_init(ptx::shared_address(&smem.full[slot]), 1);
      ptx::mbarrier_init(ptx::shared_address(&smem.empty[slot]), kConsumerWarps);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (thread < kConsumerThreads) {
    consume<C>(params, smem, place, tiles, thread);
  } else if (thread == kConsumerThreads && tiles.count > 0) {
    produce<C>(smem, maps, place, tiles.count);
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocksPerSm)
    wgmma_tma_kernel(const __grid_constant__ Maps maps, const __grid_constant__ RungParams params) {
  if constexpr (ptx::kHasWgmma) attend<C>(maps, params);
}

template <class C>
cudaError_t launch_config(const RungParams& params, cudaStream_t stream) {
  Maps maps{};
  const auto encode = [&](CUtensorMap& map, const void* base, const Strides& stride, int rows,
                          int box_rows) {
    const host::TensorLayout layout{params.batch, params.heads, rows,      C::kHeadDim,
                                    stride.batch, stride.head,  stride.row};
    return host::encode_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, base, layout, box_rows,
                                   C::KvTile::kPanelColumns);
  };
  const int64_t blocks = query_tiles(params, kBlockQ);
  if (blocks > 0 && params.seqlen_kv > 0) {  // without keys, no block uses the maps
    cudaError_t error = encode(maps.q, params.q, params.q_stride, params.seqlen_q, kBlockQ);
    if (error != cudaSuccess) return error;
    error = encode(maps.k, params.k, params.k_stride, params.seqlen_kv, kBlockKv);
    if (error != cudaSuccess) return error;
    error = encode(maps.v, params.v, params.v_stride, params.seqlen_kv, kBlockKv);
    if (error != cudaSuccess) return error;
  }
  return launch_blocks(wgmma_tma_kernel<C>, blocks, kThreads, sizeof(typename C::Shared), stream,
                       maps, clamped(params));
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_config<Config<64>>(params, stream);
    case 128:
      return launch_config<Config<128>>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const Rung kRung15WgmmaTma = {
    .name = "15_wgmma_tma",
    .adds = "Hopper: TMA loads, mbarriers, and wgmma by one warpgroup a block",
    .prediction =
        "wgmma reaches the full Tensor Core rate, mma.sync 63% of it, and no ldmatrix: 1.4x faster "
        "than 12 on long and wide (43 and 75 us); no gain on (1,8,512,64), which is latency",
    .input = RungInput::fp16,
    .min_compute_capability = 90,
    .max_compute_capability = 90,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
