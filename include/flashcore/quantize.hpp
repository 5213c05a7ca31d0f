// Quantisation: makes an fp8 tensor and its scales, in the form that attention takes, from a Q, K
// or V in a wider type. Also transposes an fp8 V. docs/semantics.md says what is computed
// ("Quantisation", "V stored transposed").
//
//   Quantize what;
//   what.x = TensorDesc::contiguous(DType::bf16, {1, 8, 4096, 128});
//   what.x_out = TensorDesc::contiguous(DType::f8e4m3, {1, 8, 4096, 128});
//   what.scale = TensorDesc::contiguous(DType::f32, {1, 8, 64});  // Problem::k_scale
//   what.scale_block = 64;                                        // Problem::kv_scale_block
//   Status status = quantize(what, {.x = k, .x_out = k8, .scale = k_scale});
//
// A call, not a plan: it chooses nothing, needs no workspace, and depends only on shapes.
#pragma once

#include <cstdint>
#include <optional>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct Quantize {
  TensorDesc x;      // [B, H, S, D]; packed: [total, H, D]. f32, f16 or bf16
  TensorDesc x_out;  // output, the same shape. f8e4m3 or f8e5m2
  // Output, f32. [B|1, H|1], as Problem::q_scale, or [B|1, H|1, blocks|1], as k_scale and v_scale.
  TensorDesc scale;
  std::optional<TensorDesc> mean;        // output, [B, H, D], f32: subtracted from all rows first
  std::optional<TensorDesc> cu_seqlens;  // [B + 1], i32: the rows are packed
  std::optional<TensorDesc> seqlens;     // [B], i32: rows in use
  int64_t scale_block = 0;               // rows per block; 0: one block
  int64_t max_seqlen = 0;  // packed: most rows per sequence; 0: not known (at most total)
};

// An output shares no memory with any other tensor (see Arguments).
struct QuantizeArguments {
  const void* x = nullptr;
  void* x_out = nullptr;
  float* scale = nullptr;
  float* mean = nullptr;
  const int32_t* cu_seqlens = nullptr;
  const int32_t* seqlens = nullptr;
};

// On an error nothing is written. Only the device and the threads of `options` are used. On a GPU
// the call is asynchronous in `stream` and allocates nothing; lengths are not checked but clamped
// to the tensor's extents.
FLASHCORE_API Status quantize(const Quantize& what, const QuantizeArguments& arguments,
                              const PlanOptions& options = {}, Stream stream = {});

// Transposes an fp8 V in rows, [B, H, S, D], to the layout of Problem::v_transposed. `v_out` is an
// output of the same type, [B, H, D, columns], with columns a multiple of 128 and at least S.
// Columns without a row become 0. A call, not a plan, like `quantize`.
FLASHCORE_API Status transpose_v(const TensorDesc& v, const void* data, const TensorDesc& v_out,
                                 void* out, const PlanOptions& options = {}, Stream stream = {});

}  // namespace flashcore
