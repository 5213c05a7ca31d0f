// What a launch of an instance with options is told besides: what only some problems ask for.
//
//   option_transpose   V^T into the workspace, and 0 into amax_o and amax_s, where they are wanted
//   an instance        attention; it starts while the values are still being transposed
//
//   clear_largest      those zeros alone, where V^T is not made
//   option_exact       instead of the instance, of tensors that do not begin at multiples of 16 bytes
#pragma once

#include <cstdint>

#include "cuda/attention/softcap.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// amax_o or amax_s, as the bits of nonnegative numbers:
// NaN is larger than all others. Null: not requested.
struct LargestValues {
  uint32_t* data;
  int64_t batch, head;  // strides; 0: one element serves the whole dimension
  int batches, heads;   // extents

  constexpr uint32_t* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

struct OptionParams : Params {
  HeadScale o_scale;  // divides an fp8 O
  LargestValues amax_o, amax_s;
  float softcap;  // 0: none
  int parts;      // of V's columns: tiles of the same queries
  bool packed;
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
