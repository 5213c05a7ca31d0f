// The parameters of one launch of forward_sm80_latency.
#pragma once

#include <cstdint>

#include "cuda/attention/latency/params.hpp"

namespace flashcore::cuda::forward_sm80::latency {

inline constexpr int kPieceElements = 8;  // a piece is 16 bytes, the size of one copy

// A tensor whose rows begin at multiples of a piece, with strides
// in pieces: an offset in it is a sum of 32-bit products.
struct Pieces {
  const void* data;
  uint32_t row, head, batch;

  constexpr uint32_t at(uint32_t its_batch, uint32_t its_head, uint32_t its_row) const {
    return its_batch * batch + its_head * head + its_row * row;
  }
};

// The parameters of the first copies if all tiles are whole.
// They come first, as the constant cache is cold at launch.
struct WholeParams {
  Pieces q, k, v;
};

struct Params {
  WholeParams whole;
  attention::latency::Params problem;
};

}  // namespace flashcore::cuda::forward_sm80::latency
