// Rung 14, fp8_native: the e4m3 inputs of rung 13 enter the Tensor Core
// directly, by mma.sync m16n8k32 (sm_89 and later); P also becomes e4m3.
//
//   tile j  : | wait K, V | S = Q K^T | (mask) | softmax | T = P V | O = O * r + T |
//   tile j+1:             | copy K, V --------------------------------------------->
//
// sm_90 has no such instruction: there the compiler unpacks to half and multiplies twice, so Hopper
// runs this rung correctly but gains nothing from it.
//
// Two facts make P V work without moving P between lanes or storing V transposed. The
// accumulators of S, packed four to a register, are an A operand whose k-slots hold the
// keys in another order (tile/fragment.hpp, fp8_key_of_slot). And ldmatrix.trans, which
// moves 16-bit pairs, gives a lane two neighbouring dimensions of two keys: selecting
// bytes from two such registers yields exactly the keys of that order, once for the
// even dimensions and once for the odd ones. O's columns are therefore interleaved.
//
// Precision. P is scaled by 2^8, so that e4m3's range reaches down to 2^-17 of the maximum.
// The Tensor Core keeps about 13 bits between partial sums, so each tile's P V starts from
// zero and is added to O in fp32, which also rescales O. In masked tiles, a row may have only
// a few keys, whose rounding errors do not average out: there, P is the sum of two e4m3 terms.
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
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarpSize;
constexpr int kWarpRows = 16, kBlockQ = kWarps * kWarpRows;
constexpr int kStages = 2;
// log2 of P's factor: 2^8 is the largest power of two that e4m3 holds.
[[maybe_unused]] constexpr int kShift = 8;

template <int kHeadDim_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kBlockKv = kHeadDim == 64 ? 64 : 32;  // S shares the registers with O
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 1>;
  using KvTile = tile::SmemTile<kBlockKv, kHeadDim, 1>;
  using OutputTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    union {
      unsigned char kv[kStages][2][KvTile::kBytes];  // stage, K or V
      unsigned char output[OutputTile::kBytes];      // after the last tile
    };
    BlockWork work;
  };
};

// Read again for each use, rather than kept across the main loop.
[[maybe_unused]] __device__ __forceinline__ int lane_index() {
  return ptx::thread_index() % kWarpSize;
}
[[maybe_unused]] __device__ __forceinline__ int warp_row() {
  return ptx::thread_index() / kWarpSize * kWarpRows;
}

// The start of this lane's ldmatrix rows of Q as A.
template <class C>
__device__ __forceinline__ uint32_t query_address(const unsigned char* q) {
  return ptx::shared_address(q) +
         C::QTile::chunk_offset(warp_row() + lane_index() % 16, lane_index() / 16);
}

// S = Q K^T for this warp's 16 rows.
template <class C>
__device__ __forceinline__ void compute_scores(float (&s)[C::kBlockKv / 8][4], uint32_t q_lane,
                                               uint32_t k_lane) {
#pragma unroll
  for (int n = 0; n < C::kBlockKv / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
  }
#pragma unroll
  for (int step = 0; step < C::kHeadDim / 32; ++step) {
    uint32_t q[4];
    ptx::ldmatrix_x4(q, C::QTile::template advance<2>(q_lane, step));
#pragma unroll
    for (int n16 = 0; n16 < C::kBlockKv / 16; ++n16) {
      uint32_t k[4];
      ptx::ldmatrix_x4(
          k, C::KvTile::template advance<2>(k_lane, step) + 16 * n16 * C::KvTile::kPanelRowBytes);
      ptx::mma_m16n8k32_e4m3(s[2 * n16], q, k[0], k[1]);
      ptx::mma_m16n8k32_e4m3(s[2 * n16 + 1], q, k[2], k[3]);
    }
  }
}

// P as A operands of 32 keys each, in the order of fp8_p_source.
template <int kProducts>
__device__ __forceinline__ void pack_operand(uint32_t (&p)[kProducts / 4][4],
                                             const float (&s)[kProducts][4]) {
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const tile::AccumulatorElement from = tile::fp8_p_source(4 * (i % 4) + e);
      x[e] = s[4 * (i / 4) + from.product][from.e];
    }
    p[i / 4][i % 4] = ptx::pack_e4m3x4(x[0], x[1], x[2], x[3]);
  }
}

// s -= P: leaves the rounding error of P's first term.
template <int kProducts>
__device__ __forceinline__ void subtract_operand(float (&s)[kProducts][4],
                                                 const uint32_t (&p)[kProducts / 4][4]) {
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const tile::AccumulatorElement from = tile::fp8_p_source(4 * (i % 4) + e);
      const uint32_t halves = ptx::e4m3x2_to_f16x2((p[i / 4][i % 4] >> (8 * e)) & 0xffffU);
      const float2 rounded = __half22float2(reinterpret_cast<const __half2&>(halves));
      float(&product)[4] = s[4 * (i / 4) + from.product];
      product[from.e] -= rounded.x;
      product[from.e + 1] -= rounded.y;
    }
  }
}

// O = O * rescale + P V, where P is p[0] or the sum of both.
template <class C>
__device__ __forceinline__ void accumulate_output(float (&o)[C::kHeadDim / 8][4],
                                                  const uint32_t (&p)[2][C::kBlockKv / 32][4],
                                                  bool two_terms, const float (&rescale)[2],
                                                  uint32_t v_lane) {
#pragma unroll
  for (int d16 = 0; d16 < C::kHeadDim / 16; ++d16) {
    uint32_t v[C::kBlockKv / 32][4];
#pragma unroll
    for (int step = 0; step < C::kBlockKv / 32; ++step) {
      ptx::ldmatrix_x4_trans(v[step], C::KvTile::template advance<1>(v_lane, d16) +
                                          32 * step * C::KvTile::kPanelRowBytes);
    }
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint32_t bytes = parity == 0 ? 0x6420 : 0x7531;
      float product[4] = {};
#pragma unroll
      for (int step = 0; step < C::kBlockKv / 32; ++step) {
        const uint32_t low = __byte_perm(v[step][0], v[step][1], bytes);
        const uint32_t high = __byte_perm(v[step][2], v[step][3], bytes);
        ptx::mma_m16n8k32_e4m3(product, p[0][step], low, high);
        if (two_terms) ptx::mma_m16n8k32_e4m3(product, p[1][step], low, high);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        o[2 * d16 + parity][e] = fmaf(o[2 * d16 + parity][e], rescale[e / 2], product[e]);
      }
    }
    // At head_dim 128, this keeps the next fragments from being loaded early: no register is left.
    if constexpr (C::kHeadDim == 128) __syncwarp();
  }
}

template <class C>
__device__ __forceinline__ void attend(const RungParams& params) {
  auto& smem = shared_storage<typename C::Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  BlockWork& work = smem.work;
  if (thread == 0) {
    const TilePlace place = longest_first_place(params, kBlockQ);
    const float qk_scale = place.scale(params.q_scale, params.q_scale_stride) *
                           place.scale(params.k_scale, params.k_scale_stride);
    set_block_work<unsigned char>(work, params, kBlockQ, C::kBlockKv, qk_scale);
  }
  __syncthreads();

  const auto copy_kv = [&](int tile) {
    tile::copy_rows_async<typename C::KvTile, kThreads>(smem.kv[tile % kStages][0], work.k,
                                                        params.k_stride.row, tile * C::kBlockKv,
                                                        work.tiles.kv_end, thread);
    tile::copy_rows_async<typename C::KvTile, kThreads>(smem.kv[tile % kStages][1], work.v,
                                                        params.v_stride.row, tile * C::kBlockKv,
                                                        work.tiles.kv_end, thread);
    ptx::cp_async_commit();
  };

  float o[C::kHeadDim / 8][4] = {};
  QuadRows rows;

  if (work.tiles.count > 0) {
    tile::copy_rows_async<typename C::QTile, kThreads>(
        smem.q, work.q, params.q_stride.row, work.place.first_row, params.seqlen_q, thread);
    ptx::cp_async_commit();
    copy_kv(0);
    ptx::cp_async_wait<1>();
    __syncthreads();
    if (work.flip_q) {
      flip_signs<kE4m3Signs>(smem.q, C::QTile::kBytes, thread, kThreads);
      __syncthreads();
    }
  }
  // The start of this lane's ldmatrix rows: K as B with its keys as columns, V as B transposed.
  const uint32_t k_lane = C::KvTile::chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t v_lane = C::KvTile::chunk_offset(lane, 0);
  for (int tile = 0; tile < work.tiles.count; ++tile) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile has landed, and nothing reads the stage before any more
    if (tile + 1 < work.tiles.count) copy_kv(tile + 1);

    unsigned char *k = smem.kv[tile % kStages][0], *v = smem.kv[tile % kStages][1];
    const bool masked = tile >= work.tiles.whole;
    if (masked) {
      const bool found = zero_nonfinite<E4m3Values, C::KvTile::kBytes>(v, thread, kThreads);
      if (__syncthreads_or(found) && thread == 0) work.repair = true;
    }
    float s[C::kBlockKv / 8][4], rescale[2];
    compute_scores<C>(s, query_address<C>(smem.q), ptx::shared_address(k) + k_lane);
    if (masked) {
      const int key = tile * C::kBlockKv;
      const int row = work.place.first_row + warp_row() + lane_index() / 4;
      mask_columns(s, lane_index(),
                   {visible_keys(params, row) - key, visible_keys(params, row + 8) - key});
    }
    online_softmax<kShift>(s, rows, rescale, work.scale_log2);
    uint32_t p[2][C::kBlockKv / 32][4];
    pack_operand(p[0], s);
    if (masked) {
      subtract_operand(s, p[0]);
      pack_operand(p[1], s);
    }
    accumulate_output<C>(o, p, masked, rescale, ptx::shared_address(v) + v_lane);
  }

  __syncthreads();
  Finish finish;
  finish.factor = work.place.scale(params.v_scale, params.v_scale_stride);
  finish.lse_shift = kShift;
  if (work.repair) finish.repair_from = work.tiles.whole * C::kBlockKv;
  store_rows<typename C::OutputTile, E4m3Values, Columns::interleaved>(
      params, work.place, smem.output, warp * kWarpRows, lane, o, rows, finish);
}

template <class C>
__global__ void __launch_bounds__(kThreads, 4)
    fp8_native_kernel(const __grid_constant__ RungParams params) {
  if constexpr (ptx::kHasE4m3Products) attend<C>(params);
}

template <class C>
cudaError_t launch_config(const RungParams& params, cudaStream_t stream) {
  return launch_blocks(fp8_native_kernel<C>, query_tiles(params, kBlockQ), kThreads,
                       sizeof(typename C::Shared), stream, clamped(params));
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

const Rung kRung14Fp8Native = {
    .name = "14_fp8_native",
    .adds = "e4m3 mma.sync m16n8k32 on the inputs as they are, P in e4m3 without leaving registers",
    .prediction =
        "half the products and half the shared-memory reads of 12, the same exponentials: 0.75x "
        "its "
        "time on long (45 us), 0.65x on wide, 6.5 us on (1,8,512,64)",
    .input = RungInput::fp8_e4m3,
    .min_compute_capability = 89,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
