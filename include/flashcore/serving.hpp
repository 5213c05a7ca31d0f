// Serving operators in addition to attention: merging two partial results, and appending to a
// cache. docs/semantics.md says what is computed ("Merge", "Append").
//
// Both are calls, not plans: they choose nothing, need no workspace, and depend only on shapes. On
// a GPU they are asynchronous in `stream`, like Plan::run, and the host reads no length or table.
#pragma once

#include <cstdint>
#include <optional>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// Partial results a and b of the same queries over disjoint keys.
struct Merge {
  TensorDesc o_a;                 // [B, Hq, Sq, Dv]; packed: [total_q, Hq, Dv]. f32, f16 or bf16
  TensorDesc o_b;                 // the same shape and dtype
  TensorDesc lse_a;               // [B, Hq, Sq]; packed: [total_q, Hq]. f32
  TensorDesc lse_b;               // as lse_a
  TensorDesc o;                   // the shape of o_a; its dtype, or f32
  std::optional<TensorDesc> lse;  // the shape of lse_a, f32
};

// An output may be an input of the same kind (o may be o_a or o_b, lse may be lse_a or lse_b), with
// the same strides and dtype. Otherwise it shares no memory with an input (see Arguments).
struct MergeArguments {
  const void* o_a = nullptr;
  const void* o_b = nullptr;
  const float* lse_a = nullptr;
  const float* lse_b = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
};

// Only the device and the threads of `options` are used.
FLASHCORE_API Status merge(const Merge& what, const MergeArguments& arguments,
                           const PlanOptions& options = {}, Stream stream = {});

// Appends new keys and values to a cache, with an optional rotation (RoPE) of the new keys and of
// queries at the same positions.
struct Append {
  TensorDesc k_new;  // [B, Hkv, Snew, Dqk]; packed: [total, Hkv, Dqk]. f32, f16, bf16 or fp8
  TensorDesc v_new;  // as k_new with Dv, dtype of k_new
  TensorDesc k;      // the cache, as Problem::k: in one piece or in pages. dtype of k_new, or fp8
  TensorDesc v;      // as k with Dv; dtype of v_new, or fp8
  TensorDesc seqlens_kv;                     // [B], i32: rows of the cache in use before the call
  std::optional<TensorDesc> seqlens_new;     // [B], i32: new rows in use
  std::optional<TensorDesc> cu_seqlens_new;  // [B + 1], i32: the new rows are packed
  std::optional<TensorDesc> page_table;      // this to kv_scale_block: as in Problem
  std::optional<TensorDesc> kv_indptr;
  std::optional<TensorDesc> kv_indices;
  std::optional<TensorDesc> cache_leftpad;
  std::optional<TensorDesc> page_status;
  std::optional<TensorDesc> k_scale;  // for an fp8 cache: it stores the value divided by its scale
  std::optional<TensorDesc> v_scale;
  int64_t kv_scale_block = 0;
  bool v_transposed = false;  // v is [B, Hkv, Dv, columns], as Problem::v_transposed says

  // RoPE: from tables, or from a base above 0.
  std::optional<TensorDesc> rope_cos;  // [positions, rotary_dim / 2], f32
  std::optional<TensorDesc> rope_sin;  // as rope_cos
  float rope_base = 0;                 // angle of pair n at position m: m * scale * base^(-2n / R)
  float rope_scale = 1;
  int64_t rotary_dim = 0;       // R, with a base: number of rotated elements, even; 0: all of Dqk
  bool interleaved = false;     // pairs are (2n, 2n + 1); otherwise (n, n + R / 2)
  std::optional<TensorDesc> q;  // [B, Hq, Snew, Dqk]; packed: [total, Hq, Dqk]. dtype of k_new
  std::optional<TensorDesc> q_out;  // rotated, shape and dtype of q; may be q itself
};

struct AppendArguments {
  const void* k_new = nullptr;
  const void* v_new = nullptr;
  void* k = nullptr;
  void* v = nullptr;
  const int32_t* seqlens_kv = nullptr;
  const int32_t* seqlens_new = nullptr;
  const int32_t* cu_seqlens_new = nullptr;
  const int32_t* page_table = nullptr;
  const int32_t* kv_indptr = nullptr;
  const int32_t* kv_indices = nullptr;
  const int32_t* cache_leftpad = nullptr;
  int32_t* page_status = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  const float* rope_cos = nullptr;
  const float* rope_sin = nullptr;
  const void* q = nullptr;
  void* q_out = nullptr;
};

// k, v and q_out share no memory with each other or with an input (see Arguments), but q_out may be
// q. On an error nothing is written. On a GPU, rows that do not fit the cache are left out.
FLASHCORE_API Status append(const Append& what, const AppendArguments& arguments,
                            const PlanOptions& options = {}, Stream stream = {});

// One serving step in one call: appends, and then runs an attention plan over the same cache.
// `attention` must be as after `append`: its seqlens_kv count the new rows, and its q may be q_out.
// Both are checked before anything is written. The workspace is as in Plan::run, and `options` are
// as in `append`.
FLASHCORE_API Status append_and_attend(const Append& what, const AppendArguments& rows,
                                       const Plan& plan, const Arguments& attention,
                                       const PlanOptions& options = {}, void* workspace = nullptr,
                                       size_t workspace_bytes = 0, Stream stream = {});

}  // namespace flashcore
