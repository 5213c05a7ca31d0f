// fp16 -> e4m3 with one scale per (batch, head): creates the inputs of the fp8 rungs.
//
//   scale = amax / 448, or 1 if amax is 0; amax is the largest |x| of the (batch, head), ignoring NaN
//   value = e4m3(x / scale), rounded to nearest even, saturating; NaN stays NaN
//
// Both divisions are in fp32, so a host computation gives the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/ladder/rung.hpp"

namespace flashcore::cuda::ladder {

struct QuantizeParams {
  const void* input;  // [batch, heads, rows, head_dim] fp16, rows 16-byte aligned
  Strides input_stride;
  void* output;                      // the same shape, e4m3, contiguous
  float* scale;                      // [batch, heads], contiguous: value = stored * scale
  int batch, heads, rows, head_dim;  // head_dim is a multiple of 8
};

// Two kernels on `stream`; neither allocates nor synchronises.
cudaError_t quantize_e4m3(const QuantizeParams& params, cudaStream_t stream);

}  // namespace flashcore::cuda::ladder
