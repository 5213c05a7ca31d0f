// Rung 13, fp8_stage_c: Q, K and V are e4m3 with a scale per (batch, head); tiles are dequantised
// to half in shared memory and multiplied by WMMA.
//
// Half the bytes are read from memory; the products are the fp16 rungs'. The scales are never
// applied to the data: Q's and K's are merged into the softmax scale, V's into the final normalisation.
//
//   tile j  : | wait | raw K, V -> half | S = Q K^T | softmax in registers | P to shared | O += P V
//   tile j+1:                           | copy raw K, V ------------------------------------------>
//
// A block owns 64 query rows, a warp 16. A thread dequantises the pieces that it copied itself, so
// the raw tiles need only one stage and no barrier of their own. The softmax runs on the accumulator
// fragments; each is two m16n8 accumulators (tile/wmma_fragment.hpp). Half tiles have rows
// padded by 16 bytes, which spreads eight rows over all banks in a layout that WMMA can read.
#include <mma.h>

#include "cuda/ladder/quad_rows.cuh"
#include "cuda/ladder/register_epilogue.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/tile_place.cuh"
#include "cuda/ladder/value_guard.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/tile/wmma_fragment.hpp"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWarps = 4, kThreads = kWarps * kWarpSize;
constexpr int kWarpRows = 16, kBlockQ = kWarps * kWarpRows;
constexpr int kPieceBytes = 16;  // of raw data: 16 elements

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
using OperandA = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using KeysAsColumns = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using KeysAsRows = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major>;

template <int kHeadDim_>
struct Config {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kBlockKv = kHeadDim == 64 ? 64 : 32;  // S shares the registers with O
  static constexpr int kRowHalves = kHeadDim + 8;
  static constexpr int kProbabilityHalves = kBlockKv + 8;

  struct Shared {
    alignas(128) __half q[kBlockQ * kRowHalves];  // at the end: staging of O
    __half k[kBlockKv * kRowHalves], v[kBlockKv * kRowHalves];
    __half p[kWarps][kWarpRows * kProbabilityHalves];
    alignas(kPieceBytes) unsigned char raw_k[kBlockKv * kHeadDim], raw_v[kBlockKv * kHeadDim];
  };
  static_assert(sizeof(Shared) <= 64 * 1024);

  // The offset of the staged rows of O.
  static constexpr int offset(int row, int column) { return (row * kRowHalves + column) * 2; }
};

// 16 e4m3 -> 16 halves.
__device__ __forceinline__ void dequantize_piece(__half* half, uint4 raw) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  uint32_t pairs[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = ptx::e4m3x2_to_f16x2(words[i] & 0xffffU);
    pairs[2 * i + 1] = ptx::e4m3x2_to_f16x2(words[i] >> 16);
  }
  auto* to = reinterpret_cast<uint4*>(half);
  to[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  to[1] = {pairs[4], pairs[5], pairs[6], pairs[7]};
}

// Copies rows of e4m3 into a dense raw tile; rows at or past rows_left (more than 0) become zero.
template <class C>
__device__ __forceinline__ void copy_raw(unsigned char* raw, const unsigned char* rows,
                                         int64_t row_stride, int rows_left, int thread) {
  constexpr int kPieces = C::kHeadDim / kPieceBytes;
#pragma unroll
  for (int i = thread; i < C::kBlockKv * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const bool valid = row < rows_left;
    ptx::cp_async_16(raw + i * kPieceBytes,
                     rows + (valid ? row : 0) * row_stride + i % kPieces * kPieceBytes, valid);
  }
}

// Converts the thread's own pieces of a raw tile to halves. With kGuard,
// NaN becomes 0, and the function returns whether there was any.
template <class C, bool kGuard>
__device__ __forceinline__ bool dequantize_own(__half* tile, unsigned char* raw, int thread) {
  constexpr int kPieces = C::kHeadDim / kPieceBytes;
  bool found = false;
  if constexpr (kGuard) {
    found = zero_nonfinite<E4m3Values, C::kBlockKv * C::kHeadDim>(raw, thread, kThreads);
  }
#pragma unroll
  for (int i = thread; i < C::kBlockKv * kPieces; i += kThreads) {
    dequantize_piece(tile + i / kPieces * C::kRowHalves + i % kPieces * kPieceBytes,
                     *reinterpret_cast<const uint4*>(raw + i * kPieceBytes));
  }
  return found;
}

// Loads Q's rows of this block as halves, with signs flipped on demand; rows past the end are zero.
template <class C>
__device__ __forceinline__ void load_queries(__half* q, const unsigned char* rows,
                                             int64_t row_stride, int rows_left, bool flip,
                                             int thread) {
  constexpr int kPieces = C::kHeadDim / kPieceBytes;
  for (int i = thread; i < kBlockQ * kPieces; i += kThreads) {
    const int row = i / kPieces;
    uint4 raw{};
    if (row < rows_left) {
      raw = *reinterpret_cast<const uint4*>(rows + row * row_stride + i % kPieces * kPieceBytes);
    }
    if (flip) {
      raw.x ^= kE4m3Signs, raw.y ^= kE4m3Signs;
      raw.z ^= kE4m3Signs, raw.w ^= kE4m3Signs;
    }
    dequantize_piece(q + row * C::kRowHalves + i % kPieces * kPieceBytes, raw);
  }
}

// S = Q K^T for the warp's rows, as m16n8 accumulators.
template <class C>
__device__ __forceinline__ void compute_scores(float (&s)[C::kBlockKv / 8][4], const __half* q,
                                               const __half* k) {
  Accumulator scores[C::kBlockKv / 16];
#pragma unroll
  for (auto& fragment : scores) wmma::fill_fragment(fragment, 0.0F);
#pragma unroll
  for (int d = 0; d < C::kHeadDim; d += 16) {
    OperandA a;
    wmma::load_matrix_sync(a, q + d, C::kRowHalves);
#pragma unroll
    for (int n = 0; n < C::kBlockKv / 16; ++n) {
      KeysAsColumns b;
      wmma::load_matrix_sync(b, k + 16 * n * C::kRowHalves + d, C::kRowHalves);
      wmma::mma_sync(scores[n], a, b, scores[n]);
    }
  }
#pragma unroll
  for (int i = 0; i < C::kBlockKv / 2; ++i) s[i / 4][i % 4] = scores[i / 8].x[i % 8];
}

// O += P V; P goes through the warp's own buffer to become an operand.
template <class C>
__device__ __forceinline__ void accumulate_output(Accumulator (&o)[C::kHeadDim / 16],
                                                  const float (&s)[C::kBlockKv / 8][4], __half* p,
                                                  const __half* v, int lane) {
#pragma unroll
  for (int n = 0; n < C::kBlockKv / 8; ++n) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      *reinterpret_cast<uint32_t*>(p + (lane / 4 + 8 * slot) * C::kProbabilityHalves + 8 * n +
                                   2 * (lane % 4)) =
          ptx::pack_f16x2(s[n][2 * slot], s[n][2 * slot + 1]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int key = 0; key < C::kBlockKv; key += 16) {
    OperandA a;
    wmma::load_matrix_sync(a, p + key, C::kProbabilityHalves);
#pragma unroll
    for (int n = 0; n < C::kHeadDim / 16; ++n) {
      KeysAsRows b;
      wmma::load_matrix_sync(b, v + key * C::kRowHalves + 16 * n, C::kRowHalves);
      wmma::mma_sync(o[n], a, b, o[n]);
    }
  }
  __syncwarp();  // before the next tile's P
}

template <class C>
__global__ void __launch_bounds__(kThreads, 4)
    fp8_stage_c_kernel(const __grid_constant__ RungParams params) {
  auto& smem = shared_storage<typename C::Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const TilePlace place = longest_first_place(params, kBlockQ);
  const KeyTiles tiles = key_tiles(params, place.first_row, kBlockQ, C::kBlockKv);
  const float qk_scale = place.scale(params.q_scale, params.q_scale_stride) *
                         place.scale(params.k_scale, params.k_scale_stride);
  const float scale_log2 = positive_scale_log2(params, qk_scale);

  const auto rows_of = [&](const void* tensor, const Strides& stride, int row) {
    return static_cast<const unsigned char*>(tensor) + place.at(stride, row);
  };
  const auto copy_kv = [&](int tile) {
    const int first = tile * C::kBlockKv, left = tiles.kv_end - first;
    copy_raw<C>(smem.raw_k, rows_of(params.k, params.k_stride, first), params.k_stride.row, left,
                thread);
    copy_raw<C>(smem.raw_v, rows_of(params.v, params.v_stride, first), params.v_stride.row, left,
                thread);
    ptx::cp_async_commit();
  };

  Accumulator o[C::kHeadDim / 16];
#pragma unroll
  for (auto& fragment : o) wmma::fill_fragment(fragment, 0.0F);
  QuadRows rows;
  bool repair = false;  // NaN was removed from a masked tile

  if (tiles.count > 0) {
    copy_kv(0);
    load_queries<C>(smem.q, rows_of(params.q, params.q_stride, place.first_row),
                    params.q_stride.row, params.seqlen_q - place.first_row,
                    params.softmax_scale * qk_scale < 0, thread);
  }
  for (int tile = 0; tile < tiles.count; ++tile) {
    const bool masked = tile >= tiles.whole;
    ptx::cp_async_wait<0>();
    __syncthreads();  // nothing reads the half tiles any more
    dequantize_own<C, false>(smem.k, smem.raw_k, thread);
    if (masked) {
      repair |= dequantize_own<C, true>(smem.v, smem.raw_v, thread);
    } else {
      dequantize_own<C, false>(smem.v, smem.raw_v, thread);
    }
    if (tile + 1 < tiles.count) copy_kv(tile + 1);
    __syncthreads();

    float s[C::kBlockKv / 8][4], rescale[2];
    compute_scores<C>(s, smem.q + warp * kWarpRows * C::kRowHalves, smem.k);
    if (masked) {
      const int key = tile * C::kBlockKv, row = place.first_row +
                                                ptx::thread_index() / kWarpSize * kWarpRows +
                                                ptx::thread_index() % kWarpSize / 4;
      mask_columns(s, ptx::thread_index() % kWarpSize,
                   {visible_keys(params, row) - key, visible_keys(params, row + 8) - key});
    }
    online_softmax(s, rows, rescale, scale_log2);
#pragma unroll
    for (auto& fragment : o) {
#pragma unroll
      for (int i = 0; i < fragment.num_elements; ++i) {
        fragment.x[i] *= rescale[tile::wmma_accumulator_row_slot(i)];
      }
    }
    accumulate_output<C>(o, s, smem.p[warp], smem.v, lane);
  }

  Finish finish;
  finish.factor = place.scale(params.v_scale, params.v_scale_stride);
  if (__syncthreads_or(repair)) finish.repair_from = tiles.whole * C::kBlockKv;
  float output[C::kHeadDim / 8][4];
#pragma unroll
  for (int i = 0; i < C::kHeadDim / 2; ++i) output[i / 4][i % 4] = o[i / 8].x[i % 8];
  store_rows<C, E4m3Values>(params, place, reinterpret_cast<unsigned char*>(smem.q),
                            warp * kWarpRows, lane, output, rows, finish);
}

template <class C>
cudaError_t launch_config(const RungParams& params, cudaStream_t stream) {
  return launch_blocks(fp8_stage_c_kernel<C>, query_tiles(params, kBlockQ), kThreads,
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

const Rung kRung13Fp8StageC = {
    .name = "13_fp8_stage_c",
    .adds = "e4m3 inputs with a scale per head, dequantised to half in shared memory for WMMA",
    .prediction =
        "the mission's 1 MB of inputs was never the limit and each tile is now converted: 1.5x "
        "slower than 12 (12 us on (1,8,512,64)), still under 50",
    .input = RungInput::fp8_e4m3,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
