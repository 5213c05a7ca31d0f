// The layout of the 16-bit tensors in the workspace, and
// the problem that they define. Needs no CUDA header.
//
//   workspace   | Q | K | V | O, unless it is written in place | the 16-bit kernel's own |
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cuda/convert/fp8/params.hpp"
#include "problem/problem.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::convert::fp8 {

// A 16-bit tensor with gaps only at the end of its rows, which are whole chunks.
struct Placed {
  int64_t offset = 0, bytes = 0;  // kTooLarge if they do not fit
  int64_t batch = 0, heads = 0, rows = 0, pitch = 0;
  bool heads_inner = false;

  RowStrides strides(bool packed) const;
};

struct Layout {
  Placed q, k, v, o;
  DType dtype = DType::bf16;
  bool keeps_powers[2] = {true, true};  // of the scales of K and of V: see Powers
  bool converts_o = false;  // O is another type, or needs largest values or powers of two
  int64_t rest = 0;         // start of the 16-bit kernel's own workspace; kTooLarge
};

inline constexpr int64_t kAlignment = 256, kElementBytes = 2;

inline Placed place(const RowStrides& from, int64_t batch, int64_t heads, int64_t rows,
                    int64_t columns) {
  Placed placed{.batch = batch, .heads = heads, .rows = rows};
  placed.pitch = (columns + kChunk - 1) / kChunk * kChunk;
  placed.heads_inner = heads > 1 && std::abs(from.head) < std::abs(from.row);
  placed.bytes = product_of({batch, heads, rows, placed.pitch, kElementBytes});
  return placed;
}

inline int64_t behind(const Placed& placed) {
  const int64_t end = sum_of({placed.offset, placed.bytes, kAlignment - 1});
  return end == kTooLarge ? end : end / kAlignment * kAlignment;
}

inline RowStrides Placed::strides(bool packed) const {
  return {.batch = packed ? 0 : heads * rows * pitch,
          .head = heads_inner ? pitch : rows * pitch,
          .row = heads_inner ? heads * pitch : pitch};
}

inline Layout layout_of(const ForwardProblem& p) {
  const int64_t batch = p.packed ? 1 : p.batch;
  const int64_t rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t rows_kv = p.packed ? p.total_kv : p.seqlen_kv;
  Layout layout{.q = place(p.q, batch, p.heads_q, rows_q, p.head_dim_qk),
                .k = place(p.k, batch, p.heads_kv, rows_kv, p.head_dim_qk),
                .v = place(p.v, batch, p.heads_kv, rows_kv, p.head_dim_v),
                .o = {}};
  // The LSE shows the rounding of bf16: docs/forward-fp8.md.
  if (p.has_lse || p.o_dtype == DType::f16) {
    layout.dtype = DType::f16;
    layout.keeps_powers[0] = p.k_scale.present && p.k_scale.block != 0;
    // An O of f16 has the same range as values of f16.
    layout.keeps_powers[1] = (p.v_scale.present && p.v_scale.block != 0) ||
                             (p.o_dtype == DType::f16 && !p.amax_o.present);
  }
  layout.converts_o = p.o_dtype != layout.dtype || p.amax_o.present || !layout.keeps_powers[1];
  layout.k.offset = behind(layout.q);
  layout.v.offset = behind(layout.k);
  layout.rest = behind(layout.v);
  if (!layout.converts_o) return layout;
  layout.o = place(p.o, batch, p.heads_q, rows_q, p.head_dim_v);
  // A warp then has consecutive rows of one head, and finds their largest value together.
  if (p.amax_o.present) layout.o.heads_inner = false;
  layout.o.offset = layout.rest;
  layout.rest = behind(layout.o);
  return layout;
}

// Returns the problem on the tensors in the workspace.
inline ForwardProblem as_16_bit(const ForwardProblem& p, const Layout& layout) {
  ForwardProblem half = p;
  half.dtype = half.k_dtype = half.v_dtype = half.o_dtype = layout.dtype;
  half.q = layout.q.strides(p.packed);
  half.k = layout.k.strides(p.packed);
  half.v = layout.v.strides(p.packed);
  if (layout.converts_o) half.o = layout.o.strides(p.packed);
  half.q_scale = half.o_scale = {};
  half.k_scale = half.v_scale = {};
  half.kv_scale_block = std::max<int64_t>(p.seqlen_kv, 1);
  half.amax_o = {};
  return half;
}

}  // namespace flashcore::cuda::convert::fp8
