// Everything that one launch of forward_fp8_sm89 is told. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

enum class OutputType : int32_t { f32, f16, bf16 };

// A scale for each batch entry and head; null: 1.
struct HeadScale {
  const float* data;
  int64_t batch, head;

  constexpr float at(int64_t b, int64_t h) const {
    return data == nullptr ? 1.0F : data[b * batch + h * head];
  }
};

struct Params : attention::ForwardParams {
  attention::TileOrder order;         // of a packed batch, only longest_first counts
  int packed_slots;                   // a head, see packed_tiles.hpp; 0: order.q_tiles an entry
  uint32_t heads, heads_per_kv_head;  // of queries
  bool precise;                       // P in two terms, whatever the number of keys
  bool by_rows;                       // all rows as in exact_rows.cuh: tensors at any address
  OutputType output;
  int64_t left, right;  // the band: unlimited sides are negative, others at most 2^32
  float softmax_scale;
  float cap;       // in natural units, log2(e) times it is finite; 0: there is none
  float cap_log2;  // in units of log2
  HeadScale q_scale, k_scale, v_scale;
  const float* sinks;  // one per head; null when there are none
  int64_t sinks_step;
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
