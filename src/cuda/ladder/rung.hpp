// The interface of every rung of the ladder: one signature, one parameter block.
//
// A rung is a teaching kernel. It supports dense [B, H, S, D] tensors with any strides for B, H
// and S (the last dimension contiguous, rows 16-byte aligned), head_dim 64 or 128, causal or
// not, and refuses everything else with a reason. Its launch neither allocates nor synchronises.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace flashcore::cuda::ladder {

// Element strides of a [B, H, S, D] tensor; D is contiguous.
struct Strides {
  int64_t batch, head, row;
};

struct RungParams {
  const void* q;  // [batch, heads, seqlen_q,  head_dim], fp16 (fp8 rungs: e4m3)
  const void* k;  // [batch, heads, seqlen_kv, head_dim]
  const void* v;  // [batch, heads, seqlen_kv, head_dim]
  void* o;        // [batch, heads, seqlen_q,  head_dim], fp16
  float* lse;     // [batch, heads, seqlen_q], natural log; null: not requested
  Strides q_stride, k_stride, v_stride, o_stride;
  Strides lse_stride;
  int batch, heads, seqlen_q, seqlen_kv, head_dim;
  float softmax_scale;
  bool causal;            // query i sees key j if j <= i + causal_offset
  int64_t causal_offset;  // 0: top left; seqlen_kv - seqlen_q: bottom right
  // fp8 rungs only: value = stored * scale; element [b * stride_batch + h * stride_head].
  const float *q_scale, *k_scale, *v_scale;
  int64_t q_scale_stride[2], k_scale_stride[2], v_scale_stride[2];
  void* workspace;  // workspace_bytes(params) bytes, 256-byte aligned; may be null if that is 0
};

enum class RungInput { fp16, fp8_e4m3 };

struct Rung {
  const char* name;        // "04_wmma_pv", also the variant's name on the command line
  const char* adds;        // one line: what it adds to the previous rung
  const char* prediction;  // one line: the expected gain, written before it was measured
  RungInput input;
  int min_compute_capability;  // 80, 89, 90: the oldest that has its instructions
  int max_compute_capability;  // 90 for wgmma, which later families dropped; otherwise 0, no limit
  size_t (*workspace_bytes)(const RungParams&);
  cudaError_t (*launch)(const RungParams&, cudaStream_t);  // every launch error is returned
};

// All rungs, in climbing order.
std::span<const Rung> rungs();

}  // namespace flashcore::cuda::ladder
