// Everything that one launch of forward_fp8_sm90 is told. Strides are in elements.
//
//   transpose       V^T into the workspace, and 0 into amax_o and amax_s, where they are wanted
//   an instance     attention; it starts while the values are still being transposed
//
//   clear_largest   only those zeros, where V^T is not made
//   exact           instead of the instance, of tensors that do not begin at multiples of 16 bytes
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

struct Maps {
  CUtensorMap q, k, vt;
};

enum class OutputType : int32_t { f32, f16, bf16, e4m3, e5m2 };  // fp8: with options

// A scale per sequence and head; null: 1.
struct HeadScale {
  const float* data;
  int64_t batch, head;

  constexpr float at(int64_t b, int64_t h) const {
    return data == nullptr ? 1.0F : data[b * batch + h * head];
  }
};

struct Params : attention::ForwardParams {
  attention::TileOrder order;
  uint32_t heads, heads_per_kv_head;  // query heads
  attention::BandLimits limits;       // of every sequence, unless `varies`
  bool varies;                        // sequences differ in their lengths or diagonals
  bool precise;                       // P in two terms, for any number of keys
  OutputType output;
  int64_t left, right;  // the band: negative sides are unlimited, others at most 2^32
  float softmax_scale;
  HeadScale q_scale, k_scale, v_scale;
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
  HeadScale o_scale;  // divides an fp8 O
  LargestValues amax_o, amax_s;
  float softcap;  // 0: none
  int parts;      // of V's columns: tiles of the same queries
  bool packed;
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
