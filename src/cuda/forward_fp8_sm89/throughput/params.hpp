// The parameters of one launch of forward_fp8_sm89. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

enum class OutputType : int32_t { f32, f16, bf16 };

// A scale per sequence and head; null: 1.
struct HeadScale {
  const float* data;
  int64_t batch, head;

  constexpr float at(int64_t b, int64_t h) const {
    return data == nullptr ? 1.0F : data[b * batch + h * head];
  }
};

struct Params : attention::ForwardParams {
  attention::TileOrder order;         // a packed batch uses longest_first only
  int packed_slots;                   // per head, see packed_tiles.hpp; 0: order.q_tiles tiles
  uint32_t heads, heads_per_kv_head;  // query heads
  bool precise;                       // P in two terms, for any number of keys
  bool by_rows;                       // all rows by exact_rows.cuh: unaligned tensors
  OutputType output;
  int64_t left, right;  // the band: negative sides are unlimited, others at most 2^32
  float softmax_scale;
  float cap;       // in natural units, finite times log2(e); 0: no cap
  float cap_log2;  // in units of log2
  HeadScale q_scale, k_scale, v_scale;
  const float* sinks;  // one per head; null: no sinks
  int64_t sinks_step;
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
