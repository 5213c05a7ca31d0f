// Quantises fp16 to e4m3: one kernel finds the scales, with one block per (batch, head); one converts.
//
// A maximum does not depend on the order of comparisons, so the result is deterministic.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/ladder/quantize_e4m3.hpp"
#include "cuda/ladder/rung_common.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kScaleThreads = 1024, kConvertThreads = 256;
constexpr int kPieceHalves = 8;  // 16 bytes
constexpr float kLargestE4m3 = 448.0F;

// Piece `piece` of (batch, head) number `batch_head`, with pieces numbered along rows.
__device__ const uint4& input_piece(const QuantizeParams& params, int64_t batch_head,
                                    int64_t piece) {
  const int row_pieces = params.head_dim / kPieceHalves;
  const int64_t batch = batch_head / params.heads, head = batch_head % params.heads;
  const int64_t at = batch * params.input_stride.batch + head * params.input_stride.head +
                     piece / row_pieces * params.input_stride.row +
                     piece % row_pieces * kPieceHalves;
  return *reinterpret_cast<const uint4*>(static_cast<const __half*>(params.input) + at);
}

__device__ int64_t pieces_per_head(const QuantizeParams& params) {
  return int64_t{params.rows} * (params.head_dim / kPieceHalves);
}

__global__ void __launch_bounds__(kScaleThreads)
    scale_kernel(const __grid_constant__ QuantizeParams params) {
  auto& warp_max = ptx::static_shared<float[kScaleThreads / kWarpSize]>();
  const int thread = static_cast<int>(threadIdx.x);
  float largest = 0;
  for (int64_t piece = thread; piece < pieces_per_head(params); piece += kScaleThreads) {
    const uint4 halves = input_piece(params, blockIdx.x, piece);
    for (int i = 0; i < kPieceHalves; ++i) {
      largest = fmaxf(largest, fabsf(__half2float(reinterpret_cast<const __half*>(&halves)[i])));
    }
  }
  const auto across_warp = [](float x) {
    for (int lane = kWarpSize / 2; lane > 0; lane /= 2) {
      x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, lane));
    }
    return x;
  };
  largest = across_warp(largest);
  if (thread % kWarpSize == 0) warp_max[thread / kWarpSize] = largest;
  __syncthreads();
  if (thread < kWarpSize) {
    const float amax = across_warp(warp_max[thread]);
    if (thread == 0) params.scale[blockIdx.x] = amax == 0 ? 1.0F : __fdiv_rn(amax, kLargestE4m3);
  }
}

__global__ void __launch_bounds__(kConvertThreads)
    convert_kernel(const __grid_constant__ QuantizeParams params) {
  const int64_t pieces = pieces_per_head(params);
  const int64_t all = pieces * params.batch * params.heads;
  for (int64_t i = int64_t{blockIdx.x} * kConvertThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kConvertThreads) {
    const int64_t batch_head = i / pieces;
    const uint4 halves = input_piece(params, batch_head, i % pieces);
    const float scale = params.scale[batch_head];
    uint2 bytes;
    for (int e = 0; e < kPieceHalves; ++e) {
      const float x = __half2float(reinterpret_cast<const __half*>(&halves)[e]);
      reinterpret_cast<__nv_fp8_storage_t*>(&bytes)[e] =
          __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3);
    }
    static_cast<uint2*>(params.output)[i] = bytes;
  }
}

}  // namespace

cudaError_t quantize_e4m3(const QuantizeParams& params, cudaStream_t stream) {
  if (params.head_dim % kPieceHalves != 0) return cudaErrorInvalidValue;
  const int64_t heads = int64_t{params.batch} * params.heads;
  const int64_t pieces = heads * params.rows * (params.head_dim / kPieceHalves);
  const cudaError_t error = launch_blocks(scale_kernel, heads, kScaleThreads, 0, stream, params);
  if (error != cudaSuccess) return error;
  const int64_t blocks = (pieces + kConvertThreads - 1) / kConvertThreads;
  return launch_blocks(convert_kernel, std::min<int64_t>(blocks, std::numeric_limits<int>::max()),
                       kConvertThreads, 0, stream, params);
}

}  // namespace flashcore::cuda::ladder
