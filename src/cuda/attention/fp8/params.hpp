// What the kernels of fp8 inputs are told. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/element_type.hpp"
#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::attention::fp8 {

inline constexpr int kWarpRows = 16;  // rows per warp
inline constexpr int kBlockKv = 128;  // keys per block of V^T in the workspace

// Tiles with at most this many keys have P in two terms: rounding errors of few probabilities do not average out.
inline constexpr int kFewKeys = 256;

struct Params : ForwardParams {
  TileOrder order;
  uint32_t heads, heads_per_kv_head;  // query heads
  BandLimits limits;                  // of every sequence, unless `varies`
  bool varies;                        // sequences differ in their lengths or diagonals
  bool precise;                       // P in two terms, for any number of keys
  ElementType output;
  int64_t left, right;  // the band: negative sides are unlimited, others at most 2^32
  float softmax_scale;
  HeadVector q_scale, k_scale, v_scale;
  const float* sinks;  // one per head; null: no sinks
  int64_t sinks_step;

  // V^T in the workspace: [batch, heads_kv, head_dim, vt_keys], a whole number of KV
  // blocks. Unused if the caller's V is stored transposed: then `v` has dimensions as rows.
  uint8_t* vt;
  int vt_keys;
};

// amax_o or amax_s, as the bits of nonnegative numbers:
// NaN is larger than all others. Null: not requested.
struct LargestValues {
  uint32_t* data;
  int64_t batch, head;  // strides; 0: one element serves the whole dimension
  int batches, heads;   // extents

  constexpr uint32_t* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

// For instances with options. Those without take only the first part.
struct OptionParams : Params {
  HeadVector o_scale;  // divides an fp8 O
  LargestValues amax_o, amax_s;
  float softcap;  // 0: none
  int parts;      // of V's columns: tiles of the same queries
  bool packed;
};

}  // namespace flashcore::cuda::attention::fp8
