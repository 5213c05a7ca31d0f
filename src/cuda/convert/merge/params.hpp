// Everything that merge's launch is told. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/element_type.hpp"
#include "cuda/attention/inputs.hpp"

namespace flashcore::cuda::convert::merge {

using attention::ElementType;

inline constexpr int kThreads = 256, kWarpRows = 32;

struct Params {
  const void *o_a, *o_b;
  const float *lse_a, *lse_b;
  void* o;
  float* lse;  // null when not wanted
  attention::RowStride o_a_at, o_b_at, lse_a_at, lse_b_at, o_at, lse_at;
  ElementType type, o_type;  // o_type: `type`, or f32
  int64_t all_rows;          // batch * heads * rows
  int heads, rows;
  int width;                     // of a row
  int per_chunk;                 // elements that a thread takes at once: 16 bytes of o_a, or 1
  attention::Divisor by_chunks;  // of a row
};

}  // namespace flashcore::cuda::convert::merge
